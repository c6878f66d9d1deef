// SPDX-License-Identifier: Apache-2.0
// Of the choices that change nothing, those of `serving`.
#include <array>

#include "plan/document/idle_fields.hpp"
#include "plan/document/plan_uses.hpp"
#include "plan/serving/serving.hpp"

namespace orrery::plan {
namespace {

struct ServingRule {
  std::string_view name;
  bool (*stated)(const ServingOptions&);
  bool (*applies)(const ServingOptions&, const PlanUses&);
  std::string_view needs;
};

constexpr std::array kServingRules = {
    ServingRule{"chunk", [](const ServingOptions& o) { return o.chunk > 0; },
                [](const ServingOptions& o, const PlanUses&) {
                  return o.prefill == Prefill::Chunked && o.chunk < o.token_budget;
                },
                "prefill = chunked and a larger token_budget"},
    ServingRule{"overlap_chunks", [](const ServingOptions& o) { return o.overlap_chunks; },
                [](const ServingOptions& o, const PlanUses& u) {
                  return o.prefill == Prefill::Chunked && u.pipeline;
                },
                "prefill = chunked in a pipeline: pp > 1"},
    ServingRule{"routing", [](const ServingOptions& o) { return o.routing != Routing::InTurn; },
                [](const ServingOptions&, const PlanUses& u) { return u.plan.dp > 1; },
                "several replicas: dp > 1"},
    ServingRule{"all_reduce",
                [](const ServingOptions& o) { return o.all_reduce != AllReduce::Nccl; },
                [](const ServingOptions&, const PlanUses& u) {
                  return u.tensor_parallel || u.context_parallel || u.expert_parallel || u.pipeline;
                },
                "several ranks in a replica"},
};

}  // namespace

std::vector<IdleField> idle_serving_fields(const PlanUses& uses) {
  std::vector<IdleField> idle;
  if (!uses.serving) {
    return idle;
  }
  const ServingOptions& options = uses.plan.serving->options;
  for (const ServingRule& rule : kServingRules) {
    if (rule.stated(options) && !rule.applies(options, uses)) {
      idle.push_back({"serving." + std::string(rule.name), std::string(rule.needs)});
    }
  }
  return idle;
}

}  // namespace orrery::plan
