// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule_traits.hpp"

#include <fmt/format.h>

#include "sim/orders/schedule_document.hpp"

namespace orrery::plan {

ScheduleTraits schedule_traits(const sim::Schedule& schedule) {
  ScheduleTraits traits = schedule.traits;
  traits.uses_times = traits.uses_times && !schedule.one_list_in_plans;
  traits.uses_slices =
      traits.uses_slices && !traits.by_modules && !traits.fills_frozen && !traits.packs_sequences;
  return traits;
}

ScheduleTraits schedule_traits(const Plan& plan) {
  return plan.schedule_document == nullptr
             ? schedule_traits(sim::find_schedule(plan.schedule, "schedule"))
             : sim::traits_of(*plan.schedule_document);
}

std::string schedules_with(bool ScheduleTraits::*trait) {
  std::string names;
  for (const sim::Schedule* schedule : sim::schedule_table()) {
    if (schedule->traits.*trait) {
      names += fmt::format("{}\"{}\"", names.empty() ? "" : " or ", schedule->name);
    }
  }
  return names;
}

bool lacks_stage_bounds(const sim::Schedule& schedule, int chunks) {
  const ScheduleTraits& traits = schedule.traits;
  return traits.runs_arcs || traits.packs_sequences || traits.cascades ||
         (schedule.chooses_placement && chunks > 1);
}

bool lacks_stage_bounds(const Plan& plan) {
  if (!plan.packs.empty()) {
    return true;
  }
  return plan.schedule_document == nullptr &&
         lacks_stage_bounds(sim::find_schedule(plan.schedule, "schedule"), plan.chunks);
}

bool may_cut_backwards(const ScheduleTraits& traits, int chunks) {
  return traits.splits_backward || (traits.shares_output_layer && chunks > 1);
}

std::string reason_not_in_plans(const sim::Schedule& schedule) {
  if (schedule.in_plans) {
    return "";
  }
  return schedule.needs.empty()
             ? fmt::format("schedule \"{}\" is not available for plans", schedule.name)
             : fmt::format("schedule \"{}\" is not available for plans: it needs {}", schedule.name,
                           schedule.needs);
}

}  // namespace orrery::plan
