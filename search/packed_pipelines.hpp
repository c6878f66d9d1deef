// SPDX-License-Identifier: Apache-2.0
// Plans for sequences of different length in a pipeline (plan/packs.hpp), as DynaPipe makes them
// (search/problems/micro_batches.hpp): for a layout the cost model runs three micro-batches, which
// give the time and the bytes of any other; its cut, replicas and order are the plan's packs,
// padded each to its longest sequence. The cap of activations is what memory holds beside the
// states.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "search/space/constraints.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

// The layout with packs of these sequences, simulated. Nothing where they do not fit, or the
// schedule takes no such number of micro-batches.
std::optional<Found> with_micro_batches(const plan::Plan& layout,
                                        const std::vector<std::int64_t>& lengths);

}  // namespace orrery::search
