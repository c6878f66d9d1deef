// SPDX-License-Identifier: Apache-2.0
// Whether the experts of a block divide among the ranks that its layout spreads them over.
#include <fmt/format.h>

#include <string>

#include "base/error.hpp"
#include "plan/block/layout_check.hpp"
#include "plan/block_rules.hpp"

namespace orrery::plan {

namespace {

// The axes inside a replica that experts are spread over.
std::string axes_inside(const BlockPlan& layout) {
  const bool cp = layout.expert_cp == 1;
  if (expert_tensor_ranks(layout) == layout.tp) {
    return "cp";
  }
  return fmt::format("tp{}{}", layout.expert_tp > 1 ? " / expert_tp" : "", cp ? " x cp" : "");
}

// Experts are spread over tensor-parallel ranks first, then over those of cp, then over replicas: a
// part of the one, or all of it and more.
void check_nesting(const BlockPlan& layout, const std::string& where) {
  if (nests_experts(layout)) {
    return;
  }
  const int tensor = layout.tp / expert_tensor_ranks(layout);
  const int beyond = layout.ep / tensor;
  const bool over_tensor = layout.ep % tensor != 0;
  const bool in_mix = !over_tensor && layout.context == ContextParallel::Mix && beyond < layout.cp;
  bad_input(where,
            fmt::format("ep = {}, but experts are spread over {} = {} ranks first", layout.ep,
                        axes_inside(layout), expert_ranks_inside(layout)),
            over_tensor
                ? fmt::format("a divisor or a multiple of {}, or expert_tp = 0", tensor)
                : fmt::format("ep / {}, here {}: {} cp = {}, or expert_cp = 0", tensor, beyond,
                              in_mix ? fmt::format("ulysses_degree = {} or a multiple of",
                                                   layout.ulysses_degree)
                                     : "a divisor or a multiple of",
                              layout.cp));
}

void check_ranks(const BlockPlan& layout, std::int64_t replicas, const std::string& where) {
  check_nesting(layout, where);
  const int inside = expert_ranks_inside(layout);
  if (layout.ep < inside) {
    return;  // copies are in every replica
  }
  if (replicas * inside % layout.ep != 0) {
    const bool over_tp = expert_tensor_ranks(layout) < layout.tp;
    const bool over_cp = layout.expert_cp == 1;
    const std::string ranks =
        over_tp || over_cp ? fmt::format("dp x {}", axes_inside(layout)) : "dp";
    bad_input(
        where,
        fmt::format("{} = {} is not divisible by ep = {}", ranks, replicas * inside, layout.ep),
        expert_tensor_ranks(layout) > 1 ? "expert_tp = 1 spreads experts over all ranks of tp"
        : layout.cp > 1 && !over_cp     ? "expert_cp = 1 spreads experts over the cp ranks, too"
                                        : fmt::format("a divisor of {}", replicas * inside));
  }
}

// An axis that experts are spread over and that is told other variables would not hold as many as
// ep says.
void check_told_axes(const BlockPlan& layout, const std::string& where) {
  BlockPlan usual = layout;
  usual.variables = {};
  const BlockRules rules = rules_of(usual, false);
  const Mesh mesh = mesh_of(layout, expert_replicas(layout));
  for (const Axis axis : kAxes) {
    const auto slot = static_cast<std::size_t>(axis);
    const std::vector<models::Var>& vars = rules.other.preference[slot];
    const std::vector<models::Var> told = layout.variables[slot].vars();
    if (mesh.of(axis) > 1 && !told.empty() && !vars.empty() && vars.front() == Var::Expert &&
        told.front() != Var::Expert) {
      bad_input(where,
                fmt::format("`variables` of axis {} do not begin with expert, but ep = {} spreads "
                            "experts over its {} ranks",
                            to_text(axis), layout.ep, mesh.of(axis)),
                "expert first in that list, or another ep, expert_tp or expert_cp");
    }
  }
}

}  // namespace

void check_experts(const Plan& plan, const BlockPlan& layout, const std::string& where) {
  if (layout.expert_tp < 0 || (layout.expert_tp > 0 && layout.tp % layout.expert_tp != 0)) {
    bad_input(where, fmt::format("expert_tp is {}; it must be 0 (as tp) or a divisor of tp = {}",
                                 layout.expert_tp, layout.tp));
  }
  const models::MoeSpec& moe = plan.network.spec.moe;
  if (moe.experts == 0 && layout.ep != 1) {
    bad_input(where,
              fmt::format("ep = {}, but {} has no experts", layout.ep, plan.network.spec.name));
  }
  if (splits_tensor_ranks(layout) && !layout.tensor_shares.empty()) {
    bad_input(where, fmt::format("expert_tp = {} with tensor_shares", layout.expert_tp),
              fmt::format("0 or {} (as tp), or 1 with ep a multiple of tp: shares are of all ranks "
                          "of tp",
                          layout.tp));
  }
  if (moe.experts == 0) {
    return;
  }
  if (moe.experts % layout.ep != 0) {
    bad_input(where,
              fmt::format("experts = {} is not divisible by ep = {}", moe.experts, layout.ep),
              fmt::format("axis ep cuts the experts of tensor \"w_expert_up\" of every layer "
                          "evenly, here with remainder {}",
                          moe.experts % layout.ep));
  }
  const BlockPlan& first = plan.blocks.front().layout;
  const std::int64_t ranks = std::int64_t{first.tp} * first.cp * plan.dp;
  check_ranks(layout, ranks / (std::int64_t{layout.tp} * layout.cp), where);
  check_told_axes(layout, where);
  const int cut = expert_tensor_ranks(layout);
  if (layout.tensor_shares.empty() && moe.ffn_hidden % cut != 0) {
    bad_input(where,
              fmt::format("moe.ffn_hidden = {} is not divisible by {} = {}", moe.ffn_hidden,
                          cut == layout.tp ? "tp" : "expert_tp", cut),
              fmt::format("axis tp cuts the width of tensor \"w_expert_up\" of every layer evenly, "
                          "here with remainder {}; expert_tp = 1 keeps experts whole",
                          moe.ffn_hidden % cut));
  }
}

}  // namespace orrery::plan
