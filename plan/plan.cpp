// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::plan {

const BlockPlan& Plan::layout_of(int chain_position) const {
  int end = 0;
  for (const BlockRun& run : blocks) {
    end += run.count;
    if (chain_position < end) {
      return run.layout;
    }
  }
  ORRERY_CHECK(false, fmt::format("no layout for chain position {}", chain_position));
}

int Plan::data_ranks(const BlockPlan& layout) const {
  const BlockPlan& first = blocks.front().layout;
  return first.tp * first.cp * dp / (layout.tp * layout.cp);
}

std::int64_t Plan::micro_batch_of(const BlockPlan& layout) const {
  return micro_batch * dp / data_ranks(layout);
}

std::int64_t Plan::micro_batch_of(const BlockPlan& layout, int block) const {
  const models::Block& described = network.blocks[static_cast<std::size_t>(block)];
  const std::int64_t items = micro_batch_of(layout) * described.items;
  return described.tokens > 0 ? std::max<std::int64_t>(1, items / encoder_parts) : items;
}

int Plan::num_gpus() const {
  ORRERY_CHECK(!blocks.empty(), "a plan without blocks");
  const BlockPlan& first = blocks.front().layout;
  // Saturates, so that an absurd plan compares unequal to every cluster instead of overflowing.
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  std::int64_t product = 1;
  for (const int degree : {first.tp, first.cp, dp, pp}) {
    product = std::min(product * degree, kLargest);
  }
  return static_cast<int>(product);
}

std::string_view to_text(Recompute recompute) {
  switch (recompute) {
    case Recompute::None:
      return "none";
    case Recompute::Selective:
      return "selective";
    case Recompute::Full:
      return "full";
    case Recompute::Products:
      return "products";
    case Recompute::Operators:
      return "operators";
  }
  return "";
}

std::string_view to_text(ContextParallel context) {
  switch (context) {
    case ContextParallel::Ring:
      return "ring";
    case ContextParallel::AllGather:
      return "all-gather";
    case ContextParallel::Ulysses:
      return "ulysses";
    case ContextParallel::Mix:
      return "mix";
  }
  return "";
}

std::string_view to_text(TensorMesh mesh) {
  switch (mesh) {
    case TensorMesh::OneD:
      return "1d";
    case TensorMesh::TwoD:
      return "2d";
    case TensorMesh::TwoAndHalfD:
      return "2.5d";
    case TensorMesh::ThreeD:
      return "3d";
  }
  return "";
}

std::string_view to_text(TensorAxis axis) {
  constexpr std::array<std::string_view, 3> kNames = {"columns", "rows", "depth"};
  return kNames[static_cast<std::size_t>(axis)];
}

std::string_view to_text(ExpertsInside inside) {
  constexpr std::array<std::string_view, 3> kNames = {"dp", "cp", "tp"};
  return kNames[static_cast<std::size_t>(inside)];
}

std::string_view to_text(Broadcasts broadcasts) {
  return broadcasts == Broadcasts::Pipelined ? "pipelined" : "binomial";
}

std::string_view to_text(Fp8Scaling scaling) {
  constexpr std::array<std::string_view, 3> kNames = {"delayed", "current", "blocks"};
  return kNames[static_cast<std::size_t>(scaling)];
}

std::string_view to_text(GraphScope scope) {
  constexpr std::array<std::string_view, 4> kNames = {"dense", "router", "attention", "layer"};
  return kNames[static_cast<std::size_t>(scope)];
}

std::string_view to_text(Softmax softmax) {
  constexpr std::array<std::string_view, 3> kNames = {"megatron", "eager", "compiled"};
  return kNames[static_cast<std::size_t>(softmax)];
}

std::string_view to_text(AmaxRanks ranks) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "model", "all"};
  return kNames[static_cast<std::size_t>(ranks)];
}

namespace {

constexpr std::array<std::string_view, models::kNumVars> kVarNames = {
    "batch", "seq",   "key-seq", "hidden", "head",   "kv-head", "head-dim",
    "ffn",   "vocab", "expert",  "latent", "choice", "table",   "rank"};

constexpr int kBitsPerVar = 4;

template <typename Value>
Value parse_value(std::string_view text, std::string_view where, std::string_view what,
                  std::initializer_list<Value> values) {
  std::vector<std::string> names;
  for (const Value value : values) {
    if (text == to_text(value)) {
      return value;
    }
    names.emplace_back(to_text(value));
  }
  bad_input(where, fmt::format("unknown {} \"{}\"", what, printable(text)),
            nearest_hint(text, names));
}

}  // namespace

Plan::Plan() = default;
Plan::Plan(const Plan&) = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(const Plan&) = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

std::string_view to_text(models::Var var) { return kVarNames[static_cast<std::size_t>(var)]; }

VarList::VarList(const std::vector<models::Var>& vars) {
  ORRERY_CHECK(vars.size() <= kMax, "too many variables of one axis");
  for (std::size_t index = 0; index < vars.size(); ++index) {
    code_ |= (static_cast<std::uint32_t>(vars[index]) + 1) << (kBitsPerVar * index);
  }
}

std::vector<models::Var> VarList::vars() const {
  std::vector<models::Var> vars;
  for (std::uint32_t rest = code_; rest != 0; rest >>= kBitsPerVar) {
    vars.push_back(static_cast<models::Var>((rest & ((1U << kBitsPerVar) - 1)) - 1));
  }
  return vars;
}

Recompute parse_recompute(std::string_view text, std::string_view where) {
  return parse_value(text, where, "recomputation",
                     {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products});
}

void set_recompute(std::string_view text, std::string_view where, BlockPlan& layout) {
  const auto named = group_named(text);
  if (named || text.find('+') != std::string_view::npos) {
    layout.recompute = Recompute::Operators;
    layout.recomputed = parse_operator_set(text, where);
    return;
  }
  layout.recompute = parse_recompute(text, where);
  layout.recomputed = OperatorSet();
}

std::string recompute_text(const BlockPlan& layout) {
  return layout.recompute == Recompute::Operators ? layout.recomputed.text()
                                                  : std::string(to_text(layout.recompute));
}

Broadcasts parse_broadcasts(std::string_view text, std::string_view where) {
  return parse_value(text, where, "broadcast", {Broadcasts::Pipelined, Broadcasts::Binomial});
}

TensorAxis parse_tensor_axis(std::string_view text, std::string_view where) {
  return parse_value(text, where, "axis of a tensor-parallel mesh",
                     {TensorAxis::Columns, TensorAxis::Rows, TensorAxis::Depth});
}

ExpertsInside parse_experts_inside(std::string_view text, std::string_view where) {
  return parse_value(text, where, "place of expert-parallel ranks",
                     {ExpertsInside::Data, ExpertsInside::Context, ExpertsInside::Tensor});
}

Fp8Scaling parse_fp8_scaling(std::string_view text, std::string_view where) {
  return parse_value(text, where, "scaling",
                     {Fp8Scaling::Delayed, Fp8Scaling::Current, Fp8Scaling::Blocks});
}

GraphScope parse_graph_scope(std::string_view text, std::string_view where) {
  return parse_value(
      text, where, "scope of graphs",
      {GraphScope::Dense, GraphScope::Router, GraphScope::Attention, GraphScope::Layer});
}

Softmax parse_softmax(std::string_view text, std::string_view where) {
  return parse_value(text, where, "softmax",
                     {Softmax::Megatron, Softmax::Eager, Softmax::Compiled});
}

AmaxRanks parse_amax_ranks(std::string_view text, std::string_view where) {
  return parse_value(text, where, "ranks", {AmaxRanks::None, AmaxRanks::Model, AmaxRanks::All});
}

ContextParallel parse_context(std::string_view text, std::string_view where) {
  return parse_value(text, where, "kind of context parallelism",
                     {ContextParallel::Ring, ContextParallel::AllGather, ContextParallel::Ulysses,
                      ContextParallel::Mix});
}

TensorMesh parse_tensor_mesh(std::string_view text, std::string_view where) {
  return parse_value(
      text, where, "tensor-parallel mesh",
      {TensorMesh::OneD, TensorMesh::TwoD, TensorMesh::TwoAndHalfD, TensorMesh::ThreeD});
}

models::Var parse_var(std::string_view text, std::string_view where) {
  for (std::size_t index = 0; index < kVarNames.size(); ++index) {
    if (text == kVarNames[index]) {
      return static_cast<models::Var>(index);
    }
  }
  bad_input(where, fmt::format("unknown variable \"{}\"", printable(text)),
            nearest_hint(text, std::vector<std::string>(kVarNames.begin(), kVarNames.end())));
}

}  // namespace orrery::plan
