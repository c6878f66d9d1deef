// SPDX-License-Identifier: Apache-2.0
// What a BlockPlan means in the terms of layout.hpp: the mesh of a stage and, per axis, the
// variables it may shard. This is the only place where a degree of a plan becomes a layout.
#pragma once

#include <algorithm>
#include <vector>

#include "costmodel/collective_model.hpp"
#include "models/operators.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

// The tp ranks as columns x rows x depth; a degree that is no square or cube, or that the stated
// factors do not divide, gives factors whose product is not tp (check_plan names it).
struct TensorFactors {
  int columns = 1;
  int rows = 1;
  int depth = 1;
  int product() const { return columns * rows * depth; }
  int of(TensorAxis axis) const;
};
TensorFactors tensor_factors(const BlockPlan& layout);
// "2d", "3d, inner rows".
std::string tensor_mesh_text(const BlockPlan& layout);

// Whether links tell the axes of the tp mesh apart, so that it matters which is the inner one: the
// mesh is larger than a node, or than a socket of a node without links of its own.
bool tensor_order_matters(const BlockPlan& layout, const topologies::Node& node);

// Tensor-parallel ranks that cut each expert: all, or expert_tp of them, while whole experts are
// spread over the others.
int expert_tensor_ranks(const BlockPlan& layout);
// Ranks of one replica that experts are spread over before any other replica has some: 1, or those
// of tp that do not cut the same expert, or cp (expert_cp = 1), or both.
int expert_ranks_inside(const BlockPlan& layout);
// Of tensor-parallel or context ranks: the first, neighbours, cut each expert, the next have other
// experts, the rest copies of them for tokens of their own.
struct ExpertRanks {
  int cut = 1;
  int spread = 1;
  int copies = 1;
};
ExpertRanks tensor_experts(const BlockPlan& layout);
ExpertRanks context_experts(const BlockPlan& layout);
// Whether experts are on a part of them or on all: first of tp, then of cp (expert_cp = 1).
bool nests_experts(const BlockPlan& layout);
// Of an expert that is spread over a part of either, in one replica; else 1.
int copies_inside(const BlockPlan& layout);
// Whether that makes several axes of either.
bool splits_tensor_ranks(const BlockPlan& layout);
bool splits_context_ranks(const BlockPlan& layout);
inline bool splits_ranks(const BlockPlan& layout) {
  return splits_tensor_ranks(layout) || splits_context_ranks(layout);
}
// Replicas that a layer's experts are spread over: 1 where each has all of them.
int expert_replicas(const BlockPlan& layout);
// Consecutive ranks that the ranks which share a layer's experts are among.
std::int64_t expert_span(const BlockPlan& layout);

// Ranks of a replica that ep_inside counts after those which share a layer's experts; 1: as usual.
int ranks_outside_experts(const BlockPlan& layout);
inline bool reorders_experts(const BlockPlan& layout) { return ranks_outside_experts(layout) > 1; }
// Whether links tell the places of those ranks apart.
bool expert_order_matters(const BlockPlan& layout, const topologies::Node& node);

// Sizes of the axes for `dp` data-parallel ranks.
Mesh mesh_of(const BlockPlan& layout, int dp);

// Whether each context rank has two chunks of the sequence, one of either end, so that all have an
// equal part of a causal triangle.
bool balances_causal(const BlockPlan& layout);

struct BlockRules {
  AxisRules attention;  // Ulysses shards the heads of the attention core over the context axis
  AxisRules other;
  // Additions and combinations leave the partial sums that they are given, so that one reduction
  // does for all of them and for every copy of a token (needed_input): where no gradient is asked
  // for. In training what makes the sums reduces them.
  bool passes_sums = false;
  const AxisRules& of(const models::Operator& op) const {
    return op.kind == models::OpKind::Attention ? attention : other;
  }
  bool shards_weights() const {
    return std::find(other.shards_weights.begin(), other.shards_weights.end(), true) !=
           other.shards_weights.end();
  }
};
BlockRules rules_of(const BlockPlan& layout, bool vocab_parallel);

// Layout of the residual stream {batch, seq, hidden} between blocks.
Layout stream_layout(const BlockRules& rules);
// Whether each tensor-parallel rank holds all of what one without tensor parallelism does.
bool replicates_stream(const BlockPlan& layout);

// The group spanned by several axes together: how many of its ranks stand on one node.
costmodel::GroupShape group_of(const Mesh& mesh, const std::vector<Axis>& axes, int gpus_per_node);
// The same for axes given by size and distance between neighbours in ranks.
struct Extent {
  int size = 1;
  std::int64_t stride = 1;
};
costmodel::GroupShape group_of(const std::vector<Extent>& axes, int gpus_per_node);

}  // namespace orrery::plan
