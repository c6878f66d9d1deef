// SPDX-License-Identifier: Apache-2.0
#include "plan/block_rules.hpp"

#include <algorithm>
#include <array>
#include <cmath>
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

int expert_ranks_inside(const BlockPlan& layout) {
  const int tensor = std::max(1, layout.tp / expert_tensor_ranks(layout));
  return tensor * (layout.expert_cp == 1 ? layout.cp : 1);
}

ExpertRanks tensor_experts(const BlockPlan& layout) {
  const int cut = std::max(1, expert_tensor_ranks(layout));
  const int others = std::max(1, layout.tp / cut);
  const int spread = std::clamp(layout.ep, 1, others);
  return {cut, spread, others / spread};
}

ExpertRanks context_experts(const BlockPlan& layout) {
  const int left = std::max(1, layout.ep / tensor_experts(layout).spread);
  const int spread = layout.expert_cp == 1 ? std::clamp(left, 1, layout.cp) : 1;
  return {1, spread, layout.cp / spread};
}

namespace {

// The axes that experts make of one-dimensional tensor ranks, neighbours first; one at least.
enum class ExpertUse : std::uint8_t { Cut, Spread, Copies };
struct ExpertAxis {
  ExpertUse use = ExpertUse::Cut;
  int ranks = 1;
};
class ExpertAxes {
 public:
  explicit ExpertAxes(const BlockPlan& layout) {
    const ExpertRanks ranks = tensor_experts(layout);
    add(ExpertUse::Cut, ranks.cut);
    add(ExpertUse::Spread, ranks.spread);
    add(ExpertUse::Copies, ranks.copies);
    size_ = std::max<std::size_t>(1, size_);
  }
  std::size_t size() const { return size_; }
  const ExpertAxis& operator[](std::size_t index) const { return axes_[index]; }

 private:
  void add(ExpertUse use, int ranks) {
    if (ranks > 1) {
      axes_[size_++] = {use, ranks};
    }
  }
  std::array<ExpertAxis, 3> axes_{};
  std::size_t size_ = 0;
};

}  // namespace

bool splits_tensor_ranks(const BlockPlan& layout) {
  return layout.mesh() == TensorMesh::OneD && ExpertAxes(layout).size() > 1;
}

bool nests_experts(const BlockPlan& layout) {
  const auto nests = [](int ranks, int available) {
    return ranks % available == 0 || available % ranks == 0;
  };
  const int tensor = std::max(1, layout.tp / expert_tensor_ranks(layout));
  const int beyond = std::max(1, layout.ep / tensor);
  const ExpertRanks context = context_experts(layout);
  const bool mixes = layout.context == ContextParallel::Mix && context.spread > 1 &&
                     context.copies > 1 && context.spread != layout.ulysses_degree;
  return nests(layout.ep, tensor) && (layout.expert_cp == 0 || nests(beyond, layout.cp)) && !mixes;
}

int copies_inside(const BlockPlan& layout) {
  return std::max(1, expert_ranks_inside(layout) / layout.ep);
}

bool splits_context_ranks(const BlockPlan& layout) {
  const ExpertRanks ranks = context_experts(layout);
  return layout.context != ContextParallel::Mix && ranks.spread > 1 && ranks.copies > 1;
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
  const ExpertRanks context = context_experts(layout);
  std::int64_t span = mesh.span({{Axis::Expert}});
  if (context.spread > 1) {
    span = std::max(
        span, context.copies > 1 ? mesh.span({{Axis::ContextHeads}}) : mesh.span(kContextAxes));
  }
  const ExpertAxes tensor(layout);
  for (std::size_t index = 0; index < tensor.size(); ++index) {
    if (tensor[index].use == ExpertUse::Spread) {
      span = std::max(span, mesh.span({{kTensorAxes[index]}}));
    }
  }
  return span;
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
  const int inner = layout.context == ContextParallel::Mix ? layout.ulysses_degree
                    : splits_context_ranks(layout)         ? context_experts(layout).spread
                                                           : 1;
  const TensorFactors tensor = tensor_factors(layout);
  Mesh mesh;
  mesh.size = {tensor.columns,    tensor.rows, tensor.depth, inner,
               layout.cp / inner, expert_axis, shard,        data / shard};
  if (splits_tensor_ranks(layout)) {
    const ExpertAxes axes(layout);
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      mesh.size[static_cast<std::size_t>(kTensorAxes[axis])] = axes[axis].ranks;
    }
  }
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
// vocabulary give it, whether its product keeps or sums over it; where experts make several axes of
// the ranks, by each of them.
void columns_only(const BlockPlan& layout, const std::vector<Var>& widths, AxisRules& rules) {
  const ExpertAxes axes(layout);
  for (std::size_t index = 0; index < axes.size(); ++index) {
    const Axis axis = kTensorAxes[index];
    std::vector<Var>& vars = at(rules, axis);
    if (axes[index].use == ExpertUse::Spread) {
      vars.push_back(Var::Expert);
    }
    vars.insert(vars.end(), widths.begin(), widths.end());
    if (layout.sequence_parallel) {
      vars.push_back(Var::Seq);
    }
    rules.copies_experts[static_cast<std::size_t>(axis)] = axes[index].use == ExpertUse::Copies;
  }
}

// Tokens, and experts that are spread over all of the axis: the inner one before the outer.
void tokens_of_context(const BlockPlan& layout, AxisRules& rules) {
  const ExpertRanks experts = context_experts(layout);
  at(rules, Axis::ContextHeads) = at(rules, Axis::Context) = {Var::Seq};
  if (experts.spread > 1) {
    at(rules, Axis::ContextHeads) = {Var::Expert, Var::Seq};
  }
  if (experts.spread > 1 && experts.copies == 1) {
    at(rules, Axis::Context) = {Var::Expert, Var::Seq};
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
  tokens_of_context(layout, rules);
  at(rules, Axis::Expert) = {Var::Expert, Var::Batch};
  at(rules, Axis::Shard) = {Var::Batch};
  at(rules, Axis::Replica) = {Var::Batch};
  override_variables(layout, rules);

  BlockRules result{rules, rules};
  const bool exchanges = layout.context == ContextParallel::Ulysses;
  if (exchanges) {
    at(result.attention, Axis::Context) = {Var::Head, Var::Seq};
  }
  if (exchanges || layout.context == ContextParallel::Mix) {
    at(result.attention, Axis::ContextHeads) = {Var::Head, Var::Seq};
  }
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

}  // namespace orrery::plan
