// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/limits.hpp"
#include "plan/stage/chain_work.hpp"
#include "plan/stages.hpp"
#include "search/space/constraints.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

namespace {

int degree(ObjectReader& run, std::string_view key, int fallback) {
  return static_cast<int>(run.integer_or(key, fallback, 1, limits::kMaxDevices));
}

std::vector<int> read_stages(ObjectReader& run, const plan::Plan& plan) {
  const int stages = plan.pp * plan.chunks;
  const auto cut = run.optional("cut");
  if (!cut || !cut->json().is_array()) {
    constexpr std::array<std::string_view, 2> kCuts = {"even", "balanced"};
    return cut && cut->one_of(kCuts) == "balanced"
               ? plan::balanced_stages(plan::flops_of_chain(plan), stages)
               : plan::even_stages(plan.network, stages);
  }
  std::vector<int> blocks;
  for (const JsonReader& entry : cut->array(limits::kMaxLayers)) {
    blocks.push_back(static_cast<int>(entry.integer(1, limits::kMaxLayers)));
  }
  return blocks;
}

// A number of equal slices, or the tokens of each.
void read_slices(ObjectReader& run, plan::Plan& plan) {
  const auto slices = run.optional("slices");
  if (slices && slices->json().is_array()) {
    for (const JsonReader& tokens : slices->array(limits::kMaxLayers)) {
      plan.slice_tokens.push_back(tokens.integer(1, limits::kMaxSequence));
    }
    plan.slices = static_cast<int>(plan.slice_tokens.size());
  } else if (slices) {
    plan.slices = static_cast<int>(slices->integer(1, limits::kMaxSequence));
  }
}

}  // namespace

Json plan_run(const JsonReader& value, ObjectReader& run) {
  plan::Plan plan = plan_of_run(value, run, "simulate");
  plan.batch = run.required("batch").integer(1, limits::kMaxBatch);
  plan.micro_batch = run.integer_or("micro_batch", 1, 1, limits::kMaxBatch);
  plan.pp = degree(run, "pp", 1);
  plan.dp = degree(run, "dp", 1);
  plan.chunks = degree(run, "chunks", 1);
  plan.schedule = run.string_or("order", "1f1b");
  read_slices(run, plan);
  plan::BlockPlan layout;
  layout.tp = degree(run, "tp", 1);
  layout.cp = degree(run, "cp", 1);
  layout.sequence_parallel = run.boolean_or("sequence_parallel", layout.tp > 1);
  layout.zero_stage = static_cast<int>(run.integer_or("zero", 0, 0, 3));
  layout.recompute = plan::parse_recompute(run.string_or("recompute", "none"), value.where());
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  plan.stage_blocks = read_stages(run, plan);
  apply_framework(run, plan);
  search::Constraints flags;
  flags.fix(run.string_or("execution", ""));
  flags.apply(plan.execution);
  run.finish();
  plan::check_plan(plan, value.where());
  const plan::Simulation simulation = plan::simulate(plan);
  Json result = simulation_json(simulation);
  result.set("fits", !simulation.does_not_fit.has_value());
  return result;
}

}  // namespace orrery::studies
