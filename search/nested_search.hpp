// SPDX-License-Identifier: Apache-2.0
// Searches the shardings of embedding tables and the number of micro-batches of nested pipelines
// (plan/recommender/pipeline.hpp) together: a search of shardings for each number.
#pragma once

#include <vector>

#include "search/table_search.hpp"

namespace orrery::search {

// The network states the schedule. `micro_batches`, at least one, are tried in their order.
TableOutcome search_nested(const plan::Recommender& network, const std::vector<int>& micro_batches,
                           const TableSearch& search);

}  // namespace orrery::search
