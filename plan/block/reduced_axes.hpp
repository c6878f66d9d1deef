// SPDX-License-Identifier: Apache-2.0
// Axes of a mesh as the states of a group know them. O(axes).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "plan/block/states.hpp"

namespace orrery::plan {

// Axes over which states may be sharded.
inline constexpr std::array<Axis, 4> kShardAxes = {Axis::ContextHeads, Axis::Context, Axis::Expert,
                                                   Axis::Shard};

// Those of several ranks over which the gradients of a group are reduced.
std::vector<Axis> reduced_axes(const StateGroup& group, const Mesh& mesh,
                               std::span<const Axis> among);

}  // namespace orrery::plan
