// SPDX-License-Identifier: Apache-2.0
#include "studies/schedule_stages.hpp"

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/schedule_cuts.hpp"

namespace orrery::studies {

namespace {

struct Variant {
  StageCut cut;
  plan::Plan plan;
};

std::vector<std::pair<StageCut, std::vector<int>>> cuts_to_try(const plan::Plan& plan,
                                                               const plan::Plan& changed) {
  const plan::ChainWork work = plan::chain_work(plan);
  const plan::ScheduleCuts own = plan::schedule_cuts(plan, work);
  const plan::ScheduleCuts cuts = plan::schedule_cuts(changed, work);
  const bool is_even = plan.stage_blocks == own.even;
  const bool is_balanced = plan.stage_blocks == own.balanced;  // may be both
  const bool same_modules = plan::module_cut(plan) == plan::module_cut(changed);
  const bool as_many = plan.stage_blocks.size() == cuts.even.size();
  if (!is_even && !is_balanced && same_modules && as_many) {
    return {{StageCut::AsPlanned, plan.stage_blocks}};
  }
  if (is_even && !is_balanced && same_modules) {
    return {{StageCut::Even, cuts.even}};
  }
  std::vector<std::pair<StageCut, std::vector<int>>> tried = {{StageCut::Even, cuts.even}};
  if (cuts.balanced != cuts.even) {
    tried.emplace_back(StageCut::Balanced, cuts.balanced);
  }
  if (same_modules && as_many && plan.stage_blocks != cuts.even &&
      plan.stage_blocks != cuts.balanced) {
    tried.emplace_back(StageCut::AsPlanned, plan.stage_blocks);
  }
  return tried;
}

std::vector<Variant> variants_of(const plan::Plan& plan, const plan::Plan& changed) {
  std::vector<bool> shipments = {plan.execution.ships_weights};
  if (plan::schedule_traits(changed).spreads_attention &&
      !plan::schedule_traits(plan).spreads_attention) {
    shipments = {false, true};
  }
  std::vector<Variant> variants;
  for (const auto& [cut, stages] : cuts_to_try(plan, changed)) {
    for (const bool ships_weights : shipments) {
      const StageCut named = stages == plan.stage_blocks ? StageCut::AsPlanned : cut;
      Variant variant{named, changed};
      variant.plan.stage_blocks = stages;
      variant.plan.execution.ships_weights = ships_weights;
      if (plan::schedule_runs(variant.plan)) {
        variants.push_back(std::move(variant));
      }
    }
  }
  if (variants.empty()) {  // the schedule asks more of its stages than either cut gives
    const bool same = changed.stage_blocks == plan.stage_blocks;
    variants.push_back({same ? StageCut::AsPlanned : StageCut::Even, changed});
  }
  return variants;
}

}  // namespace

std::string_view to_text(StageCut cut) {
  constexpr std::array<std::string_view, 3> kNames = {"as planned", "even", "balanced"};
  return kNames[static_cast<std::size_t>(cut)];
}

std::pair<bool, Seconds> rank_of(const plan::Plan& plan) {
  const plan::Simulation run = plan::simulate(plan);
  return {run.does_not_fit.has_value(), run.iteration_time};
}

StageCut cut_for_schedule(const plan::Plan& plan, plan::Plan& changed) {
  std::vector<Variant> variants = variants_of(plan, changed);
  Variant* best = &variants.front();
  if (variants.size() > 1) {
    std::pair<bool, Seconds> least = rank_of(best->plan);
    for (Variant& variant : std::span(variants).subspan(1)) {
      if (const auto rank = rank_of(variant.plan); rank < least) {
        least = rank;
        best = &variant;
      }
    }
  }
  changed = std::move(best->plan);
  return best->cut;
}

}  // namespace orrery::studies
