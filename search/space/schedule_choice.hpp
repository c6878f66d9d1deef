// SPDX-License-Identifier: Apache-2.0
// A schedule that the search may choose, with some sizes.
#pragma once

#include "plan/plan.hpp"
#include "search/space/schedule_space.hpp"

namespace orrery::search {

// As much of a plan as the choice and the sizes say.
plan::Plan plan_of(const ScheduleChoice& choice, const sim::ScheduleParams& params);

// Whether its document can go on to the end with these numbers, in plans.
bool document_runs(const ScheduleChoice& choice, const sim::ScheduleParams& params,
                   const models::Network& network);

}  // namespace orrery::search
