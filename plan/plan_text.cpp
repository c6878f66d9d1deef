// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_text.hpp"

#include <fmt/format.h>

#include <string_view>

namespace orrery::plan {

namespace {

// ", optimizer on host, 50 % of activations on host"
std::string offload_text(const Offload& offload) {
  std::string text;
  const auto add = [&text](std::string_view tensor, Tier tier) {
    if (tier != Tier::Device) {
      text += fmt::format(", {} on {}", tensor, to_text(tier));
    }
  };
  add("parameters", offload.parameters);
  add("gradients", offload.gradients);
  add("optimizer", offload.optimizer);
  add(fmt::format("{:.0f} % of activations", 100 * offload.activations),
      offload.home_of_activations());
  return text;
}

}  // namespace

std::string layout_text(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  std::string text;
  const auto degree = [&](std::string_view name, std::int64_t value, bool always) {
    if (always || value != 1) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
    }
  };
  degree("tp", layout.tp, true);
  degree("cp", layout.cp, false);
  degree("ep", layout.ep, false);
  degree("pp", plan.pp, true);
  degree("dp", plan.dp, true);
  degree("micro-batch", plan.micro_batch, true);
  if (plan.pp > 1) {
    text += fmt::format(", {}", plan.schedule);
  }
  degree("chunks", plan.chunks, false);
  text += layout.sequence_parallel ? ", sp" : "";
  if (layout.cp > 1) {
    text += fmt::format(", {} context", to_text(layout.context));
  }
  if (layout.zero_stage > 0) {
    text += fmt::format(", zero {}", layout.zero_stage);
  }
  if (layout.shard_degree > 0) {
    text += fmt::format(" over {}", layout.shard_degree);
  }
  if (layout.recompute != Recompute::None) {
    text += fmt::format(", recompute {}", to_text(layout.recompute));
  }
  text += offload_text(layout.offload);
  if (plan.blocks.size() > 1) {
    text += ", differs per block";
  }
  return text;
}

}  // namespace orrery::plan
