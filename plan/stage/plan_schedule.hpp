// SPDX-License-Identifier: Apache-2.0
// The pipeline schedule of a plan: its parameters, whether it can run there, and its lists. Costs
// as of the schedule's own generator; nothing is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

sim::ScheduleParams schedule_params(const Plan& plan);

// "" when the schedule can run in plans with these numbers, else what it asks for and the smallest
// change. Unknown names and documents that cannot run are an Error citing `where`.
std::string schedule_problem(const Plan& plan, const std::string& where);
// Whether there is none. Searches ask this: it looks for no change that helps, which takes hundreds
// of times as long, and a second where a document deadlocks; wrong lists are no Error here.
bool schedule_runs(const Plan& plan);
// Lists with the given parameters, which must be allowed.
sim::PipelineOrder schedule_order(const Plan& plan, const sim::ScheduleParams& params);
// Device of every virtual stage, from lists of few micro-batches.
std::vector<std::uint16_t> schedule_devices(const Plan& plan);
// Whether the parameters are allowed.
sim::Refusal check_schedule(const Plan& plan, const sim::ScheduleParams& params);

}  // namespace orrery::plan
