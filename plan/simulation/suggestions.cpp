// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/suggestions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity_text.hpp"
#include "plan/block_rules.hpp"

namespace orrery::plan {

namespace {

// Less of an iteration is not worth a remark.
constexpr double kLeastShare = 0.05;

bool spreads_experts_over_nodes(const Plan& plan) {
  return plan.network.spec.moe.experts > 0 &&
         std::any_of(plan.blocks.begin(), plan.blocks.end(), [&](const BlockRun& run) {
           return run.layout.ep > 1 && expert_span(run.layout) > plan.cluster.node.gpus;
         });
}

}  // namespace

std::vector<Suggestion> suggestions(const Plan& plan, const Simulation& simulation) {
  const auto& exposed = simulation.breakdown.exposed_communication;
  const auto waited = exposed.find("ep");
  if (plan.serving || plan.execution.deduplicated_dispatch || !spreads_experts_over_nodes(plan) ||
      waited == exposed.end() || waited->second < simulation.iteration_time * kLeastShare) {
    return {};
  }
  Plan changed = plan;
  changed.execution.deduplicated_dispatch = true;
  const Simulation faster = simulate(changed);
  if (faster.iteration_time >= simulation.iteration_time ||
      (faster.does_not_fit && !simulation.does_not_fit)) {
    return {};
  }
  return {{.field = "deduplicated_dispatch",
           .gain = "tokens sent once to each node, as DeepEP does",
           .waited = waited->second,
           .iteration_time = faster.iteration_time}};
}

std::string to_text(const Suggestion& suggestion, const Simulation& simulation) {
  return fmt::format(
      "{} of {} are waited for tokens between experts; {} ({} = true in `execution`, --fix {}=true "
      "in a search), this plan takes {}",
      format_duration(suggestion.waited), format_duration(simulation.iteration_time),
      suggestion.gain, suggestion.field, suggestion.field,
      format_duration(suggestion.iteration_time));
}

}  // namespace orrery::plan
