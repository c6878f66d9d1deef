// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>

#include "base/error.hpp"
#include "plan/named_values.hpp"

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

namespace {

constexpr std::array<std::string_view, 5> kRecomputations = {"none", "selective", "full",
                                                             "products", "operators"};
constexpr std::array<std::string_view, 4> kContexts = {"ring", "all-gather", "ulysses", "mix"};
constexpr std::array<std::string_view, 4> kMeshes = {"1d", "2d", "2.5d", "3d"};
constexpr std::array<std::string_view, 3> kAxisNames = {"columns", "rows", "depth"};
constexpr std::array<std::string_view, 3> kInsides = {"dp", "cp", "tp"};
constexpr std::array<std::string_view, 2> kBroadcasts = {"pipelined", "binomial"};
constexpr std::array<std::string_view, models::kNumVars> kVarNames = {
    "batch", "seq",    "key-seq", "hidden", "head",  "kv-head", "head-dim", "ffn",
    "vocab", "expert", "latent",  "choice", "table", "rank",    "positions"};

constexpr int kBitsPerVar = 4;

}  // namespace

Plan::Plan() = default;
Plan::Plan(const Plan&) = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(const Plan&) = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

std::string_view to_text(Recompute recompute) { return name_of(kRecomputations, recompute); }
std::string_view to_text(ContextParallel context) { return name_of(kContexts, context); }
std::string_view to_text(TensorMesh mesh) { return name_of(kMeshes, mesh); }
std::string_view to_text(TensorAxis axis) { return name_of(kAxisNames, axis); }
std::string_view to_text(ExpertsInside inside) { return name_of(kInsides, inside); }
std::string_view to_text(Broadcasts broadcasts) { return name_of(kBroadcasts, broadcasts); }
std::string_view to_text(models::Var var) { return name_of(kVarNames, var); }

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
  // Operators have names of their own.
  constexpr std::size_t kNamed = kRecomputations.size() - 1;
  return static_cast<Recompute>(
      index_of_name(std::span(kRecomputations).first(kNamed), text, where, "recomputation"));
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
  return parse_named<Broadcasts>(kBroadcasts, text, where, "broadcast");
}

TensorAxis parse_tensor_axis(std::string_view text, std::string_view where) {
  return parse_named<TensorAxis>(kAxisNames, text, where, "axis of a tensor-parallel mesh");
}

ExpertsInside parse_experts_inside(std::string_view text, std::string_view where) {
  return parse_named<ExpertsInside>(kInsides, text, where, "place of expert-parallel ranks");
}

ContextParallel parse_context(std::string_view text, std::string_view where) {
  return parse_named<ContextParallel>(kContexts, text, where, "kind of context parallelism");
}

TensorMesh parse_tensor_mesh(std::string_view text, std::string_view where) {
  return parse_named<TensorMesh>(kMeshes, text, where, "tensor-parallel mesh");
}

models::Var parse_var(std::string_view text, std::string_view where) {
  return parse_named<models::Var>(kVarNames, text, where, "variable");
}

}  // namespace orrery::plan
