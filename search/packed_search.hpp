// SPDX-License-Identifier: Apache-2.0
// Plans for sequences of different length: packs on groups of their own (`flexsp`, plan/packs.hpp),
// or, where a pipeline schedule is named, micro-batches of its replicas
// (search/packed_pipelines.hpp). For groups and every layout (tp, zero, recomputation, sequence
// parallelism) the cost model runs three packs of each degree, which give FlexSP's cost of a group
// and what memory holds; its assignment (search/problems/sequence_groups.hpp) makes the packs, and
// the plan is simulated as it is. What is assigned is not proven best, so the gap stays open.
// Deterministic at any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "search/tree/search.hpp"

namespace orrery::search {

// `lengths`: tokens of the sequences of a batch. Error when no layout of the constraints divides.
Outcome search_packed(const plan::Plan& base, const Options& options,
                      const std::vector<std::int64_t>& lengths);

}  // namespace orrery::search
