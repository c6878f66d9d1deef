// SPDX-License-Identifier: Apache-2.0
#include "search/space/schedule_choice.hpp"

#include "plan/stage/plan_schedule.hpp"

namespace orrery::search {

plan::Plan plan_of(const ScheduleChoice& choice, const sim::ScheduleParams& params) {
  plan::Plan plan;
  plan.schedule = choice.name;
  plan.schedule_document = choice.document;
  plan.pp = params.stages;
  plan.chunks = params.chunks;
  plan.slices = params.slices;
  plan.activation_cap = params.cap;
  plan.batch = params.micro_batches;
  return plan;
}

bool document_runs(const ScheduleChoice& choice, const sim::ScheduleParams& params,
                   const models::Network& network) {
  plan::Plan plan = plan_of(choice, params);
  plan.network = network;
  return plan::schedule_runs(plan);
}

}  // namespace orrery::search
