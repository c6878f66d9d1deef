// SPDX-License-Identifier: Apache-2.0
// Whether the experts of a block divide among the ranks that its layout spreads them over.
#include <fmt/format.h>

#include <string_view>

#include "base/error.hpp"
#include "plan/block/layout_check.hpp"
#include "plan/block_rules.hpp"

namespace orrery::plan {

namespace {

// The axes inside a replica that experts are spread over.
std::string_view axes_inside(const BlockPlan& layout) {
  const bool tp = layout.expert_tp == 1;
  return tp && layout.expert_cp == 1 ? "tp x cp" : tp ? "tp" : "cp";
}

// Other replicas have experts only when all ranks of one have.
void check_ranks(const BlockPlan& layout, std::int64_t replicas, const std::string& where) {
  const int inside = expert_ranks_inside(layout);
  if (layout.ep % inside != 0) {
    bad_input(where,
              fmt::format("ep = {}, but experts are spread over {} = {} ranks first", layout.ep,
                          axes_inside(layout), inside),
              fmt::format("a multiple of {}, or {} = 0", inside,
                          layout.expert_cp == 1 ? "expert_cp" : "expert_tp"));
  }
  if (replicas * inside % layout.ep != 0) {
    const bool over_tp = layout.expert_tp == 1;
    const bool over_cp = layout.expert_cp == 1;
    const std::string ranks =
        over_tp || over_cp ? fmt::format("dp x {}", axes_inside(layout)) : "dp";
    bad_input(
        where,
        fmt::format("{} = {} is not divisible by ep = {}", ranks, replicas * inside, layout.ep),
        !over_tp   ? "expert_tp = 1 spreads experts over the tp ranks, too"
        : !over_cp ? "expert_cp = 1 spreads experts over the cp ranks, too"
                   : "");
  }
}

}  // namespace

void check_experts(const Plan& plan, const BlockPlan& layout, const std::string& where) {
  if (layout.expert_tp != 0 && layout.expert_tp != 1 && layout.expert_tp != layout.tp) {
    bad_input(where, fmt::format("expert_tp is {}; it must be 0 or {} (as tp) or 1",
                                 layout.expert_tp, layout.tp));
  }
  const models::MoeSpec& moe = plan.network.spec.moe;
  if (moe.experts == 0) {
    if (layout.ep != 1) {
      bad_input(where,
                fmt::format("ep = {}, but {} has no experts", layout.ep, plan.network.spec.name));
    }
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
  const bool cuts_widths = layout.expert_tp != 1 && layout.tensor_shares.empty();
  if (cuts_widths && moe.ffn_hidden % layout.tp != 0) {
    bad_input(
        where,
        fmt::format("moe.ffn_hidden = {} is not divisible by tp = {}", moe.ffn_hidden, layout.tp),
        "expert_tp = 1 keeps experts whole");
  }
}

}  // namespace orrery::plan
