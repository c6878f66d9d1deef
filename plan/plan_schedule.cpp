// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/arcs.hpp"
#include "plan/host_copies.hpp"
#include "plan/modules.hpp"
#include "plan/packs.hpp"
#include "plan/servers.hpp"
#include "plan/spread_attention.hpp"
#include "plan/steady_pace.hpp"
#include "plan/transfers.hpp"
#include "sim/orders/schedule_document.hpp"

namespace orrery::plan {

namespace {

std::string in_front(std::string_view name, const std::string& broken) {
  return broken.empty() ? "" : fmt::format("schedule \"{}\": {}", name, broken);
}

std::string problem_of_document(const Plan& plan) {
  const sim::ScheduleDocument& document = *plan.schedule_document;
  const sim::ScheduleParams params = schedule_params(plan);
  std::string broken = sim::check_document(document, params);
  if (broken.empty()) {
    // Throws when the lists are wrong or cannot go on.
    const sim::PipelineOrder order = sim::order_of(document, params);
    if (order.extended) {
      return "passes that recompute are said by the plan's blocks: leave them out of the document";
    }
  }
  return broken;
}

}  // namespace

ScheduleTraits schedule_traits(const sim::Schedule& schedule) {
  return {.synchronous = schedule.synchronous,
          .uses_times = schedule.uses_times && !schedule.one_list_in_plans,
          .splits_backward = schedule.splits_backward,
          .two_directions = schedule.two_directions,
          .shares_output_layer = schedule.shares_output_layer,
          .output_barriers = schedule.output_barriers,
          .shares_attention = schedule.shares_attention,
          .uses_slices = schedule.uses_slices && !schedule.by_modules && !schedule.fills_frozen &&
                         !schedule.packs_sequences,
          .fills_frozen = schedule.fills_frozen,
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
  return {.uses_times = document.rule.has_value(),
          .splits_backward = sim::splits_backward(document)};
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

bool decides_placement(const sim::Schedule& schedule, int chunks) {
  return schedule.runs_arcs || schedule.packs_sequences ||
         (schedule.chooses_placement && chunks > 1);
}

bool decides_placement(const Plan& plan) {
  return plan.schedule_document == nullptr &&
         decides_placement(sim::find_schedule(plan.schedule, "schedule"), plan.chunks);
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

std::string schedule_problem(const Plan& plan, const std::string& where) {
  if (plan.schedule_document != nullptr) {
    return in_front(plan.schedule, problem_of_document(plan));
  }
  const sim::Schedule& schedule = sim::find_schedule(plan.schedule, where);
  const std::string reason = reason_not_in_plans(schedule);
  if (!reason.empty()) {
    return reason;
  }
  if (plan.chunks > 1 && !schedule.uses_chunks) {
    return fmt::format(
        "schedule \"{}\" does not use model chunks, but chunks = {}: set chunks to 1, or the "
        "schedule to \"interleaved\"",
        schedule.name, plan.chunks);
  }
  std::string missing = modules_problem(plan);
  missing = missing.empty() ? servers_problem(plan) : missing;
  missing = missing.empty() ? host_copies_problem(plan) : missing;
  missing = missing.empty() ? spread_attention_problem(plan) : missing;
  missing = missing.empty() ? arcs_problem(plan) : missing;
  missing = missing.empty() ? packs_problem(plan) : missing;
  missing = missing.empty() ? prediction_problem(plan) : missing;
  return in_front(schedule.name, missing.empty() ? schedule.check(schedule_params(plan)) : missing);
}

std::string check_schedule(const Plan& plan, const sim::ScheduleParams& params) {
  return plan.schedule_document != nullptr
             ? sim::check_document(*plan.schedule_document, params)
             : sim::find_schedule(plan.schedule, "schedule").check(params);
}

namespace {

// Few micro-batches that the schedule takes: a placement does not depend on their number.
sim::ScheduleParams few_micro_batches(const Plan& plan) {
  const sim::ScheduleParams params = schedule_params(plan);
  sim::ScheduleParams few = params;
  for (const int count : {1, 2, plan.pp, 2 * plan.pp, 4 * plan.pp}) {
    few.micro_batches = count;
    if (count < params.micro_batches && check_schedule(plan, few).empty()) {
      return few;
    }
  }
  return params;
}

}  // namespace

std::vector<std::uint16_t> schedule_devices(const Plan& plan) {
  if (schedule_traits(plan).spreads_attention) {
    return devices_of_stages(plan, {});
  }
  std::vector<std::uint16_t> devices = schedule_order(plan, few_micro_batches(plan)).device_of;
  if (schedule_traits(plan).copies_to_host) {  // their streams hold no stages
    devices.resize(static_cast<std::size_t>(plan.pp * plan.chunks));
  }
  return devices;
}

sim::PipelineOrder schedule_order(const Plan& plan, const sim::ScheduleParams& params) {
  if (plan.schedule_document != nullptr) {
    return sim::order_of(*plan.schedule_document, params);
  }
  sim::PipelineOrder order = sim::find_schedule(plan.schedule, "schedule").order(params);
  wait_for_clock(plan, order);
  return order;
}

}  // namespace orrery::plan
