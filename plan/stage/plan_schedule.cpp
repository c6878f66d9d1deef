// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/plan_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/modules.hpp"
#include "plan/packs.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/arcs.hpp"
#include "plan/stage/host_copies.hpp"
#include "plan/stage/listed_passes.hpp"
#include "plan/stage/servers.hpp"
#include "plan/stage/spread_attention.hpp"
#include "plan/stage/steady_pace.hpp"
#include "plan/stage/transfers.hpp"
#include "sim/orders/schedule_document.hpp"
#include "sim/schedule_changes.hpp"

namespace orrery::plan {

sim::ScheduleParams schedule_params(const Plan& plan) {
  sim::ScheduleParams params;
  params.stages = plan.pp;
  params.micro_batches = static_cast<int>(plan.num_micro_batches());
  params.chunks = plan.chunks;
  params.slices = plan.slices;
  params.cap = plan.activation_cap;
  params.cap_name = "activation_cap";
  const ScheduleTraits traits = schedule_traits(plan);
  if (traits.by_modules) {
    params.warm_up = encoder_segments(plan);
    params.slices = plan.encoder_parts;
  } else if (traits.fills_frozen) {
    params.slices = frozen_portions(plan.network);
  }
  if (traits.uses_servers) {
    tell_servers(plan, params);
  }
  if (traits.packs_sequences || !plan.packs.empty()) {
    tell_packs(plan, params);
  }
  return params;
}

namespace {

std::string in_front(std::string_view name, const std::string& broken) {
  return broken.empty() ? "" : fmt::format("schedule \"{}\": {}", name, broken);
}

// What a plan sets for so many micro-batches: they follow from their size.
std::string micro_batch_advice(const Plan& plan, int micro_batches) {
  const std::int64_t of_replica = plan.batch / plan.dp;
  return of_replica % micro_batches == 0
             ? fmt::format("set micro_batch to {}", of_replica / micro_batches)
             : fmt::format("the {} sequences of a replica are no multiple of {}", of_replica,
                           micro_batches);
}

// What a document refuses, in the fields of plans.
std::string text_of(const Plan& plan, const sim::Refusal& refusal) {
  if (refusal.changes.empty()) {
    return refusal.constraint;
  }
  const sim::Change& change = refusal.changes.front();
  const int to = static_cast<int>(change.value);
  return change.size == sim::Size::Stages ? fmt::format("{}: set pp to {}", refusal.constraint, to)
         : change.size == sim::Size::MicroBatches
             ? fmt::format("{}: {}", refusal.constraint, micro_batch_advice(plan, to))
             : to_text(refusal, schedule_params(plan).cap_name);
}

// What a document asks of a plan before its lists are looked at.
std::string problem_before_lists(const Plan& plan) {
  std::string broken = packs_problem(plan);
  if (!broken.empty()) {
    return broken;
  }
  broken = text_of(plan, sim::check_document(*plan.schedule_document, schedule_params(plan)));
  return broken.empty() ? prediction_problem(plan) : broken;
}

std::string problem_of_document(const Plan& plan) {
  std::string broken = problem_before_lists(plan);
  if (broken.empty()) {
    // Throws when the lists are wrong or cannot go on.
    broken =
        listed_passes_problem(plan, sim::order_of(*plan.schedule_document, schedule_params(plan)));
  }
  return broken;
}

// What a registered schedule asks of a plan before its own constraints are looked at.
std::string problem_before_constraints(const Plan& plan, const sim::Schedule& schedule) {
  if (plan.chunks > 1 && !schedule.traits.uses_chunks) {
    return fmt::format(
        "does not use model chunks, but chunks = {}: set chunks to 1, or the "
        "schedule to \"interleaved\"",
        plan.chunks);
  }
  for (const auto problem_of :
       {modules_problem, servers_problem, host_copies_problem, spread_attention_problem,
        arcs_problem, packs_problem, prediction_problem}) {
    if (std::string problem = problem_of(plan); !problem.empty()) {
      return problem;
    }
  }
  return "";
}

bool document_runs(const Plan& plan) {
  try {
    if (!problem_before_lists(plan).empty()) {
      return false;
    }
    const auto order = sim::try_order(*plan.schedule_document, schedule_params(plan));
    return order && listed_passes_problem(plan, *order).empty();
  } catch (const Error&) {  // wrong lists
    return false;
  }
}

}  // namespace

std::string schedule_problem(const Plan& plan, const std::string& where) {
  if (plan.schedule_document != nullptr) {
    return in_front(plan.schedule, problem_of_document(plan));
  }
  const sim::Schedule& schedule = sim::find_schedule(plan.schedule, where);
  const std::string reason = reason_not_in_plans(schedule);
  if (!reason.empty()) {
    return reason;
  }
  const std::string broken = problem_before_constraints(plan, schedule);
  return in_front(schedule.name,
                  broken.empty() ? sim::refusal(schedule, schedule_params(plan)) : broken);
}

bool schedule_runs(const Plan& plan) {
  if (plan.schedule_document != nullptr) {
    return document_runs(plan);
  }
  const sim::Schedule& schedule = sim::find_schedule(plan.schedule, "schedule");
  return reason_not_in_plans(schedule).empty() &&
         problem_before_constraints(plan, schedule).empty() &&
         schedule.check(schedule_params(plan)).empty();
}

sim::Refusal check_schedule(const Plan& plan, const sim::ScheduleParams& params) {
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
