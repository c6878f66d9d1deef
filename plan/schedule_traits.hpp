// SPDX-License-Identifier: Apache-2.0
// What the pipeline schedule of a plan is, registered or a document, and what it asks of a plan.
#pragma once

#include <string>

#include "plan/plan.hpp"
#include "sim/schedule.hpp"
#include "sim/schedule_traits.hpp"

namespace orrery::plan {

using sim::ScheduleTraits;

// As plans run it: of what its lists follow in general, some have one list in plans, and slices
// only where sequences are cut.
ScheduleTraits schedule_traits(const Plan& plan);
ScheduleTraits schedule_traits(const sim::Schedule& schedule);

// The names of registered schedules with a trait, quoted: "a" or "b".
std::string schedules_with(bool ScheduleTraits::*trait);

// Whether bounds by stage cannot be told: the devices of stages, or of their gradients and updates,
// come with the lists alone, or two chains of unlike stages share them.
bool lacks_stage_bounds(const Plan& plan);
bool lacks_stage_bounds(const sim::Schedule& schedule, int chunks);

// Whether the lists may hold a backward cut in two: an output layer over all devices with chunks
// runs on V-Half.
bool may_cut_backwards(const ScheduleTraits& traits, int chunks);

// Why no plan can name a registered schedule; "" when plans can.
std::string reason_not_in_plans(const sim::Schedule& schedule);

}  // namespace orrery::plan
