// SPDX-License-Identifier: Apache-2.0
// Axes of a mesh as the states of a group know them. O(axes).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "plan/block/states.hpp"

namespace orrery::plan {

// Axes over which states may be sharded, whatever they are of.
inline constexpr std::array<Axis, 4> kShardAxes = {Axis::ContextHeads, Axis::Context, Axis::Expert,
                                                   Axis::Shard};

// Whether the states of a group may be sharded over an axis: one of those, or of experts one of
// tensor-parallel ranks that have copies of them.
bool shares_states(const StateGroup& group, Axis axis);

// Those of several ranks over which the gradients of a group are reduced.
std::vector<Axis> reduced_axes(const StateGroup& group, const Mesh& mesh,
                               std::span<const Axis> among);
// Those of them over which its states may be sharded, and the other ones of tensor-parallel ranks.
std::vector<Axis> shard_axes(const StateGroup& group, const Mesh& mesh);
std::vector<Axis> summing_tensor_axes(const StateGroup& group, const Mesh& mesh);

}  // namespace orrery::plan
