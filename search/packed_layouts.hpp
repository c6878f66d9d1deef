// SPDX-License-Identifier: Apache-2.0
// Layouts of plans for sequences of different length, to which packs (plan/packs.hpp) are still to
// be added: every tp inside a node, ZeRO stage, recomputation and sequence parallelism that the
// constraints admit, with micro-batches of one pack and blocks all alike.
#pragma once

#include <string>
#include <vector>

#include "search/space/constraints.hpp"

namespace orrery::search {

// At most so many data-parallel ranks: multisets of group sizes are enumerated.
inline constexpr int kMostPackedRanks = 64;

// Pipelines under `schedule`: with the stages and replicas (of a sequence each at least) that the
// constraints admit, ZeRO-0 or 1.
std::vector<plan::Plan> pipeline_layouts(const plan::Plan& base, const Constraints& constraints,
                                         const std::string& schedule);

// One stage under flexsp, at most kMostPackedRanks data-parallel ranks, any ZeRO stage.
std::vector<plan::Plan> group_layouts(const plan::Plan& base, const Constraints& constraints);

}  // namespace orrery::search
