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

// A size that lists ask for, in the fields of plans.
std::string set_field(const Plan& plan, std::string_view size, int to) {
  return size == "stages"         ? sim::set_parameter("pp", to)
         : size == "microbatches" ? micro_batch_advice(plan, to)
                                  : sim::set_parameter(size, to);
}

// What a document asks of a plan before its lists are looked at.
std::string problem_before_lists(const Plan& plan) {
  std::string broken = packs_problem(plan);
  if (!broken.empty()) {
    return broken;
  }
  broken =
      sim::check_document(*plan.schedule_document, schedule_params(plan),
                          [&](std::string_view size, int to) { return set_field(plan, size, to); });
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
  if (plan.chunks > 1 && !schedule.traits.uses_chunks) {
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
  return in_front(schedule.name,
                  missing.empty() ? sim::refusal(schedule, schedule_params(plan)) : missing);
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
