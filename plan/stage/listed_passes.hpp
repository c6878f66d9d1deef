// SPDX-License-Identifier: Apache-2.0
// Passes and edges that only lists of schedule documents have, in plans. R runs a stage's forward
// again and leaves what the layout of its blocks keeps; before it the stage keeps its input alone.
// U updates a stage where it is listed: it takes the rest of the stage's gradient reduction, its
// optimizer and the gathers of its parameters that do not overlap. Devices then do not meet at the
// gradient norm.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/steady_pace.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

// "" when the plan can run the passes that its document lists, else the member and the smallest
// change. The order is the document's.
std::string listed_passes_problem(const Plan& plan, const sim::PipelineOrder& order);

// Along the edges of a document: a message that something is done.
std::vector<SimTime> edge_messages(const Plan& plan, const sim::PipelineOrder& order,
                                   const BlockCosts& costs);

// Sets StageCost::forwards, by virtual stage of the order.
void count_forwards(const sim::PipelineOrder& order, std::vector<StageCost>& stages);
// The same of StageCost::cut_fraction.
void count_cut_backwards(const sim::PipelineOrder& order, std::vector<StageCost>& stages);

// A synchronous schedule that lists updates. Fills `result`, with spans, and adds the updates to
// the passes. An iteration takes the makespan, or of several the time from one to the next.
SteadyPace run_with_updates(const Plan& plan, const sim::PipelineOrder& order,
                            const std::vector<StageCost>& stages, sim::PipelineCosts& passes,
                            BlockCosts& costs, sim::PipelineResult& result);

}  // namespace orrery::plan
