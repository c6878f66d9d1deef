// SPDX-License-Identifier: Apache-2.0
#include "plan/block_rules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace orrery::plan {

namespace {

int whole_root(int value, int power) {
  const auto root = static_cast<int>(std::lround(std::pow(value, 1.0 / power)));
  return std::max(root, 1);
}

// Tesseract's q x q x d with d <= q: the fewest squares that cover the ranks, or one.
int least_depth(int ranks) {
  for (int depth = 1; depth * depth * depth <= ranks; ++depth) {
    const int side = whole_root(ranks / depth, 2);
    if (side * side * depth == ranks) {
      return depth;
    }
  }
  return 1;
}

}  // namespace

TensorFactors tensor_factors(const BlockPlan& layout) {
  TensorFactors factors;
  switch (layout.tensor_parallel) {
    case TensorMesh::OneD:
      break;
    case TensorMesh::TwoD:
      factors.rows = layout.tp_rows > 0 ? layout.tp_rows : whole_root(layout.tp, 2);
      break;
    case TensorMesh::TwoAndHalfD:
      factors.depth = layout.tp_depth > 0   ? layout.tp_depth
                      : layout.tp_rows == 0 ? least_depth(layout.tp)
                                            : 1;
      factors.rows = layout.tp_rows > 0 ? layout.tp_rows : whole_root(layout.tp / factors.depth, 2);
      break;
    case TensorMesh::ThreeD:
      factors.rows = layout.tp_rows > 0 ? layout.tp_rows : whole_root(layout.tp, 3);
      factors.depth = layout.tp_depth > 0 ? layout.tp_depth : factors.rows;
      break;
  }
  // A cube has equal sides, unless they are stated.
  const bool cube =
      layout.tensor_parallel == TensorMesh::ThreeD && layout.tp_rows == 0 && layout.tp_depth == 0;
  factors.columns = cube ? factors.rows : std::max(1, layout.tp / (factors.rows * factors.depth));
  return factors;
}

int TensorFactors::of(TensorAxis axis) const {
  return axis == TensorAxis::Columns ? columns : axis == TensorAxis::Rows ? rows : depth;
}

namespace {

// More ranks than a node has, or a socket of a node without links of its own.
bool exceeds_links(std::int64_t ranks, const topologies::Node& node) {
  const bool linked = node.scale_up.wiring != topologies::Wiring::Host;
  return ranks > (linked ? node.gpus : node.gpus / std::max(1, node.sockets));
}

}  // namespace

bool tensor_order_matters(const BlockPlan& layout, const topologies::Node& node) {
  return layout.tensor_parallel != TensorMesh::OneD && exceeds_links(layout.tp, node);
}

std::string tensor_mesh_text(const BlockPlan& layout) {
  std::string text(to_text(layout.tensor_parallel));
  if (layout.tp_inner != TensorAxis::Columns) {
    text += ", inner ";
    text += to_text(layout.tp_inner);
  }
  return text;
}

int expert_tensor_ranks(const BlockPlan& layout) {
  return layout.expert_tp == 0 ? layout.tp : layout.expert_tp;
}

bool splits_tensor_ranks(const BlockPlan& layout) {
  return layout.tensor_parallel == TensorMesh::OneD && layout.ep > 1 && layout.expert_tp > 1 &&
         layout.expert_tp < layout.tp;
}

int expert_ranks_inside(const BlockPlan& layout) {
  const int tensor = std::max(1, layout.tp / expert_tensor_ranks(layout));
  return tensor * (layout.expert_cp == 1 ? layout.cp : 1);
}

int expert_replicas(const BlockPlan& layout) {
  return std::max(1, layout.ep / expert_ranks_inside(layout));
}

bool balances_causal(const BlockPlan& layout) {
  const bool in_order = layout.context == ContextParallel::Mix
                            ? layout.cp > layout.ulysses_degree
                            : layout.context != ContextParallel::Ulysses;
  return layout.cp > 1 && layout.zigzag && in_order;
}

std::int64_t expert_span(const BlockPlan& layout) {
  const Mesh mesh = mesh_of(layout, expert_replicas(layout));
  const bool over_tensor = expert_tensor_ranks(layout) < layout.tp;
  const std::int64_t tensor = over_tensor ? mesh.span(kTensorAxes) : 1;
  const std::int64_t context = layout.expert_cp == 1 ? mesh.span(kContextAxes) : 1;
  return std::max({mesh.span({{Axis::Expert}}), tensor, context});
}

int ranks_outside_experts(const BlockPlan& layout) {
  if (expert_replicas(layout) == 1 || layout.ep_inside == ExpertsInside::Data) {
    return 1;
  }
  return layout.ep_inside == ExpertsInside::Context ? layout.cp : layout.tp * layout.cp;
}

bool expert_order_matters(const BlockPlan& layout, const topologies::Node& node) {
  const int replicas = expert_replicas(layout);
  return replicas > 1 && exceeds_links(std::int64_t{layout.tp} * layout.cp * replicas, node);
}

Mesh mesh_of(const BlockPlan& layout, int dp) {
  const int expert_axis = expert_replicas(layout);
  const int data = dp / expert_axis;
  int shard = data;
  if (layout.shard_degree > 0) {
    shard = std::gcd(std::max(1, layout.shard_degree / (layout.cp * expert_axis)), data);
  }
  const int heads = layout.context == ContextParallel::Mix ? layout.ulysses_degree : 1;
  TensorFactors tensor = tensor_factors(layout);
  if (splits_tensor_ranks(layout)) {
    tensor.columns = layout.expert_tp;
    tensor.rows = layout.tp / layout.expert_tp;
  }
  Mesh mesh;
  mesh.size = {tensor.columns,    tensor.rows, tensor.depth, heads,
               layout.cp / heads, expert_axis, shard,        data / shard};
  mesh.innermost = kTensorAxes[static_cast<std::size_t>(layout.tp_inner)];
  mesh.expert_before = layout.ep_inside == ExpertsInside::Tensor    ? Axis::Tensor
                       : layout.ep_inside == ExpertsInside::Context ? Axis::ContextHeads
                                                                    : Axis::Shard;
  mesh.shares = layout.tensor_shares;
  mesh.tensor_rank = layout.tensor_rank < 0 ? layout.tensor_shares.largest() : layout.tensor_rank;
  return mesh;
}

namespace {

std::vector<Var>& at(AxisRules& rules, Axis axis) {
  return rules.preference[static_cast<std::size_t>(axis)];
}

// Megatron: every operator is split along the variable that attention heads, the inner width or the
// vocabulary give it, whether its product keeps or sums over it.
void columns_only(const BlockPlan& layout, const std::vector<Var>& widths, AxisRules& rules) {
  std::vector<Var>& tensor = at(rules, Axis::Tensor);
  if (layout.expert_tp == 1) {
    tensor.push_back(Var::Expert);
  }
  tensor.insert(tensor.end(), widths.begin(), widths.end());
  if (layout.sequence_parallel) {
    tensor.push_back(Var::Seq);
  }
  if (splits_tensor_ranks(layout)) {
    std::vector<Var> spread = {Var::Expert};
    spread.insert(spread.end(), tensor.begin(), tensor.end());
    at(rules, Axis::TensorRow) = std::move(spread);
  }
}

// SUMMA: columns split the outputs of every product, rows the batch; weights are cut by both.
// Depth: replicas of the weights for more of the batch.
void rows_and_columns(std::vector<Var> widths, AxisRules& rules) {
  widths.push_back(Var::Hidden);
  at(rules, Axis::Tensor) = std::move(widths);
  rules.outputs_only[static_cast<std::size_t>(Axis::Tensor)] = true;
  at(rules, Axis::TensorRow) = {Var::Batch};
  rules.shards_weights[static_cast<std::size_t>(Axis::TensorRow)] = true;
  at(rules, Axis::TensorDepth) = {Var::Batch};
}

// Cube: columns and depth split the two widths of every product, whichever it sums over, and the
// batch elsewhere; so consecutive products swap their roles without a conversion.
void cube(std::vector<Var> widths, AxisRules& rules) {
  widths.push_back(Var::Batch);
  at(rules, Axis::Tensor) = std::move(widths);
  at(rules, Axis::TensorRow) = {Var::Batch};
  rules.shards_weights[static_cast<std::size_t>(Axis::TensorRow)] = true;
  at(rules, Axis::TensorDepth) = {Var::Hidden, Var::Batch};
}

void override_variables(const BlockPlan& layout, AxisRules& rules) {
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) {
    if (!layout.variables[axis].empty()) {
      rules.preference[axis] = layout.variables[axis].vars();
    }
  }
}

}  // namespace

BlockRules rules_of(const BlockPlan& layout, bool vocab_parallel) {
  AxisRules rules;
  std::vector<Var> widths = {Var::Head, Var::Ffn, Var::Rank};
  if (vocab_parallel) {
    widths.push_back(Var::Vocab);
  }
  switch (layout.mesh()) {
    case TensorMesh::OneD:
      columns_only(layout, widths, rules);
      break;
    case TensorMesh::TwoD:
    case TensorMesh::TwoAndHalfD:
      rows_and_columns(std::move(widths), rules);
      break;
    case TensorMesh::ThreeD:
      cube(std::move(widths), rules);
      break;
  }
  for (const Axis axis : {Axis::ContextHeads, Axis::Context}) {
    if (layout.expert_cp == 1) {
      at(rules, axis).push_back(Var::Expert);
    }
    at(rules, axis).push_back(Var::Seq);
  }
  at(rules, Axis::Expert) = {Var::Expert, Var::Batch};
  at(rules, Axis::Shard) = {Var::Batch};
  at(rules, Axis::Replica) = {Var::Batch};
  override_variables(layout, rules);

  BlockRules result{rules, rules};
  if (layout.context == ContextParallel::Ulysses) {
    at(result.attention, Axis::Context) = {Var::Head, Var::Seq};
  }
  at(result.attention, Axis::ContextHeads) = {Var::Head, Var::Seq};
  return result;
}

Layout stream_layout(const BlockRules& rules) {
  Layout layout;
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) {
    for (const Var var : rules.other.preference[axis]) {
      if (var == Var::Batch || var == Var::Seq || var == Var::Hidden) {
        layout.set(static_cast<Axis>(axis), Placement::sharded(var));
        break;
      }
    }
  }
  return layout;
}

bool replicates_stream(const BlockPlan& layout) {
  const Layout stream = stream_layout(rules_of(layout, false));
  const Mesh mesh = mesh_of(layout, expert_replicas(layout));
  return std::all_of(kTensorAxes.begin(), kTensorAxes.end(),
                     [&](Axis axis) { return mesh.of(axis) == 1 || stream[axis].is_replicated(); });
}

namespace {

// Of groups whose first one lies inside a node, in blocks of so many ranks: where blocks do not
// divide the GPUs of a node, those that lie across two nodes are the slowest, and all wait for
// them.
void lay_across_nodes(std::int64_t block, int gpus_per_node, costmodel::GroupShape& group) {
  const std::int64_t ends = block / std::gcd(block, std::int64_t{gpus_per_node});
  if (ends == 1) {
    return;  // every node ends where a block does
  }
  group.nodes = 2;
  group.ranks_per_node = (group.ranks + 1) / 2;
  // Those through one end of a node, or through both.
  group.groups_per_node = std::min(group.gpu_stride * (ends == 2 ? 1 : 2),
                                   std::max(1, gpus_per_node / group.ranks_per_node));
}

}  // namespace

// Members are distances in ranks from the first one. One step of an axis back from the nearest
// member beyond the first node there is one inside, so those inside and a step from them suffice.
costmodel::GroupShape group_of(const std::vector<Extent>& axes, int gpus_per_node) {
  const std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> inside = {0};
  std::int64_t beyond = none;
  std::int64_t block = 1;
  costmodel::GroupShape group;
  group.ranks = 1;
  for (const Extent& axis : axes) {
    group.ranks *= axis.size;
    if (axis.size > 1) {
      block = std::max(block, axis.size * axis.stride);
    }
    const std::size_t known = inside.size();
    for (std::size_t member = 0; member < known; ++member) {
      for (int index = 1; index < axis.size; ++index) {
        const std::int64_t offset = inside[member] + index * axis.stride;
        if (offset >= gpus_per_node) {
          beyond = std::min(beyond, offset);
          break;
        }
        inside.push_back(offset);
      }
    }
  }
  group.ranks_per_node = static_cast<int>(inside.size());
  group.nodes = (group.ranks + group.ranks_per_node - 1) / group.ranks_per_node;
  group.groups_per_node = std::max(1, gpus_per_node / group.ranks_per_node);
  std::sort(inside.begin(), inside.end());
  group.gpu_stride = inside.size() > 1 ? static_cast<int>(inside[1]) : 1;
  group.node_stride = beyond < none ? static_cast<int>(beyond / gpus_per_node) : 1;
  if (group.nodes == 1) {
    lay_across_nodes(block, gpus_per_node, group);
  }
  return group;
}

costmodel::GroupShape group_of(const Mesh& mesh, const std::vector<Axis>& axes, int gpus_per_node) {
  std::vector<Extent> extents;
  for (const Axis axis : axes) {
    extents.push_back({mesh.of(axis), mesh.stride(axis)});
  }
  return group_of(extents, gpus_per_node);
}

}  // namespace orrery::plan
