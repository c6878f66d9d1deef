// SPDX-License-Identifier: Apache-2.0
// A lower bound on all plans of a pipeline from a small linear program: over how many blocks of
// each kind the virtual stages of a device that hold as many micro-batches give to each strategy.
// What every device works and holds, in the rows of per_block/program.hpp summed over such stages;
// no paths from one device to the next. Where devices have many chunks it rules most pipelines out
// in a fraction of the time, and bounds those whose own program would be too large.
#pragma once

#include <functional>
#include <vector>

#include "plan/schedule_traits.hpp"
#include "plan/stage/live_counts.hpp"
#include "search/per_block/costs.hpp"

namespace orrery::search {

// Seconds, capped at `until`; `plan` has the mesh and the pipeline, whose lists hold `live`. 0
// where nothing is known: lists that depend on times, two directions.
double device_bound(const plan::Plan& plan, const Pipeline& pipeline,
                    const plan::ScheduleTraits& traits, const MeshCosts& costs,
                    const std::vector<plan::LiveCounts>& live, double until,
                    const std::function<bool()>& stop);

}  // namespace orrery::search
