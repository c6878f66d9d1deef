// SPDX-License-Identifier: Apache-2.0
// Searches the shardings of embedding tables, whether a step's parts run in turn or in nested
// pipelines (plan/recommender/pipeline.hpp), and their number of micro-batches together: a search
// of shardings for each.
#pragma once

#include <vector>

#include "search/table_search.hpp"

namespace orrery::search {

// The network states the schedule. `micro_batches`, at least one, are tried in their order.
TableOutcome search_nested(const plan::Recommender& network, const std::vector<int>& micro_batches,
                           const TableSearch& search);

// The network states no schedule: parts of a step in turn, and nested pipelines with each of these
// numbers of micro-batches.
TableOutcome search_schedules(const plan::Recommender& network,
                              const std::vector<int>& micro_batches, const TableSearch& search);

}  // namespace orrery::search
