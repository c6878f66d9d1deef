// SPDX-License-Identifier: Apache-2.0
// What each rank of a group with uneven tensor shares holds of a block
// (plan/simulation/layout_report.hpp). O(ranks x tensors).
#pragma once

#include <vector>

#include "plan/block/steps.hpp"
#include "plan/simulation/layout_report.hpp"

namespace orrery::plan {

// Of every variable that shares cut the largest dimension, and the bytes of all weights; none where
// ranks are alike.
std::vector<RankShare> rank_shares(const BlockContext& context);

}  // namespace orrery::plan
