// SPDX-License-Identifier: Apache-2.0
// What a BlockPlan means in the terms of layout.hpp: the mesh of a stage and, per axis, the
// variables it may shard. This is the only place where a degree of a plan becomes a layout.
#pragma once

#include <vector>

#include "costmodel/collective_model.hpp"
#include "models/operators.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

// Sizes of the axes for `dp` data-parallel ranks.
Mesh mesh_of(const BlockPlan& layout, int dp);

struct BlockRules {
  AxisRules attention;  // Ulysses shards the heads of the attention core over the context axis
  AxisRules other;
  const AxisRules& of(const models::Operator& op) const {
    return op.kind == models::OpKind::Attention ? attention : other;
  }
};
BlockRules rules_of(const BlockPlan& layout, bool vocab_parallel);

// Layout of the residual stream between blocks.
Layout stream_layout(const BlockRules& rules);

// The group spanned by several axes together: how many of its ranks stand on one node.
costmodel::GroupShape group_of(const Mesh& mesh, const std::vector<Axis>& axes, int gpus_per_node);

}  // namespace orrery::plan
