// SPDX-License-Identifier: Apache-2.0
// Plans with asynchronous schedules: the pipeline is run over enough iterations to become steady,
// and an iteration takes as long as its micro-batches do in the middle of that run. An update of a
// stage (reduction of its gradients over data ranks, optimizer, gather of the parameters, nothing
// of it hidden) is a pass of the list.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/step_end.hpp"
#include "sim/pipeline/versions.hpp"

namespace orrery::plan {

// "" unless the schedule predicts parameters from an optimizer that is not on the device.
std::string prediction_problem(const Plan& plan);

struct SteadyPace {
  StepEnd end;     // iteration: micro-batches x period
  Seconds period;  // of a micro-batch
  sim::VersionUseOfStage versions;
  Seconds busy;          // of the busiest device in an iteration, updates included
  Seconds least_busy;    // and of the one that waits most
  bool overlaps = true;  // an iteration begins before the one before it has ended
};

// Fills `result`, with spans, and adds to the passes those of updates, services and predictions.
SteadyPace run_without_flush(const Plan& plan, const sim::PipelineOrder& order,
                             const std::vector<StageCost>& stages, sim::PipelineCosts& passes,
                             BlockCosts& costs, sim::PipelineResult& result);

}  // namespace orrery::plan
