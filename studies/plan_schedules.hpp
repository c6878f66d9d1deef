// SPDX-License-Identifier: Apache-2.0
// A plan under another pipeline schedule, for `orrery schedule NAME --plan`: the same network,
// cluster, layout and micro-batch, with stages as the schedule needs them (schedule_stages.hpp).
// Durations, transfers and bytes are those of the cost model.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "plan/plan.hpp"
#include "plan/simulation/simulate.hpp"
#include "sim/schedule.hpp"
#include "studies/schedule_run.hpp"
#include "studies/schedule_stages.hpp"

namespace orrery::studies {

struct ScheduleRequest {
  std::string name;  // registered, or a document FILE.json; empty: the plan's own
  int slices = 0;    // 0: the plan's when the schedule cuts sequences, else one or the stages'
  int chunks = 0;    // 0: the plan's when the schedule takes them, else the fewest that make it one
  double cap = 0;    // micro-batches of activations a device may hold
  std::string_view cap_name = sim::kCapName;  // as it was asked for
};

// With one chunk a device such a schedule is the same as another one, or as good as.
inline bool needs_chunks(const sim::Schedule& schedule) {
  return schedule.traits.uses_chunks && !schedule.own_with_one_chunk &&
         !schedule.traits.uses_slices;
}

struct ScheduledPlan {
  plan::Plan plan;
  StageCut cut = StageCut::AsPlanned;
};

// Error with the constraint and the smallest change when the plan cannot run the schedule.
ScheduledPlan with_schedule(const plan::Plan& plan, const ScheduleRequest& request);

struct PlanScheduleRun {
  plan::Plan plan;
  StageCut cut;
  plan::Simulation simulation;
  ScheduleMeasures measures;
};

// Error when there are too many passes to keep.
PlanScheduleRun run_plan_schedule(const ScheduledPlan& scheduled);

// Per virtual stage and per device, seconds and bytes.
Json::Object to_json(const PlanScheduleRun& run);
std::string to_text(const PlanScheduleRun& run);
// Side by side; asynchronous schedules last and without a time to compare.
std::string comparison_text(const std::vector<PlanScheduleRun>& runs);

}  // namespace orrery::studies
