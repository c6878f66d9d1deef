// SPDX-License-Identifier: Apache-2.0
// Plans for sequences of different length in packs on groups of ranks of their own (plan/packs.hpp,
// schedule `flexsp`): for a layout the cost model runs three packs of each degree, which give
// FlexSP's cost of a group and what memory holds; its assignment (search/problems/
// sequence_groups.hpp) makes the packs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "search/tree/search.hpp"

namespace orrery::search {

// The layout with packs of these sequences, simulated. Nothing when the longest sequence fits no
// group, or no packs do.
std::optional<Found> group_packs(plan::Plan layout, const std::vector<std::int64_t>& lengths);

}  // namespace orrery::search
