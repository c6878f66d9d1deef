// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule_traits.hpp"

#include <fmt/format.h>

#include "sim/orders/schedule_document.hpp"

namespace orrery::plan {

ScheduleTraits schedule_traits(const sim::Schedule& schedule) {
  return {.synchronous = schedule.synchronous,
          .uses_times = schedule.uses_times && !schedule.one_list_in_plans,
          .splits_backward = schedule.splits_backward,
          .two_directions = schedule.two_directions,
          .joins_passes = schedule.joins_passes,
          .shares_output_layer = schedule.shares_output_layer,
          .output_barriers = schedule.output_barriers,
          .shares_attention = schedule.shares_attention,
          .uses_slices = schedule.uses_slices && !schedule.by_modules && !schedule.fills_frozen &&
                         !schedule.packs_sequences,
          .fills_frozen = schedule.fills_frozen,
          .cascades = schedule.cascades,
          .by_modules = schedule.by_modules,
          .uses_servers = schedule.uses_servers,
          .pushes_waves = schedule.pushes_waves,
          .copies_to_host = schedule.copies_to_host,
          .spreads_attention = schedule.spreads_attention,
          .runs_arcs = schedule.runs_arcs,
          .packs_sequences = schedule.packs_sequences,
          .predicts_weights = schedule.predicts_weights};
}

ScheduleTraits schedule_traits(const Plan& plan) {
  if (plan.schedule_document == nullptr) {
    return schedule_traits(sim::find_schedule(plan.schedule, "schedule"));
  }
  const sim::ScheduleDocument& document = *plan.schedule_document;
  ScheduleTraits traits{.synchronous = sim::is_synchronous(document),
                        .uses_times = document.rule.has_value(),
                        .splits_backward = sim::splits_backward(document),
                        .uses_slices = sim::uses_slices(document)};
  if (document.lists) {
    traits.two_directions = sim::directions_of(*document.lists) > 1;
    traits.joins_passes = sim::joins_kinds(*document.lists);
    traits.predicts_weights = document.lists->versions == sim::Versions::Predicted;
    traits.lists_updates =
        traits.synchronous && sim::lists_kind(*document.lists, sim::PassKind::Optimizer);
  }
  traits.recomputes = sim::recomputes(document);
  return traits;
}

std::string schedules_with(bool sim::Schedule::*trait) {
  std::string names;
  for (const sim::Schedule* schedule : sim::schedule_table()) {
    if (schedule->*trait) {
      names += fmt::format("{}\"{}\"", names.empty() ? "" : " or ", schedule->name);
    }
  }
  return names;
}

bool lacks_stage_bounds(const sim::Schedule& schedule, int chunks) {
  return schedule.runs_arcs || schedule.packs_sequences || schedule.cascades ||
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

bool cuts_every_backward(const Plan& plan) {
  if (plan.schedule_document != nullptr) {
    const sim::ScheduleDocument& document = *plan.schedule_document;
    return document.rule && document.rule->split_backward;
  }
  return sim::find_schedule(plan.schedule, "schedule").cuts_every_backward;
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
