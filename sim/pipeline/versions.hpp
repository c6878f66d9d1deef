// SPDX-License-Identifier: Apache-2.0
// Parameter versions of asynchronous orders, from the lists alone: an optimizer pass of a virtual
// stage makes the next version. Staleness of a unit: updates between the version its forward used
// and the one its own gradient makes (0: synchronous). Versions: live at once on a virtual stage,
// the newest included. O(passes).
#pragma once

#include <vector>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {

struct VersionUseOfStage {
  int staleness = 0;  // largest, once the pipeline is full
  int versions = 1;
};

// One entry a virtual stage, from the lists alone; O(passes). `worst_of`: the largest of each.
std::vector<VersionUseOfStage> count_versions(const PipelineOrder& order);
VersionUseOfStage worst_of(const std::vector<VersionUseOfStage>& stages);

// Where an order predicts parameters, the first micro-batch of every iteration does so for all of
// it, in its forward and again in its backward, unless no update lies between the pass and the
// iteration's own. Adds `prediction`, by virtual stage, to those passes.
void add_predictions(const PipelineOrder& order, const std::vector<SimTime>& prediction,
                     PipelineCosts& costs);

// Time between two micro-batches of an asynchronous run once the pipeline neither fills nor drains:
// exact where the run is seen to repeat itself, else the mean in its middle. `result` needs
// recorded spans. O(passes).
double steady_period(const PipelineOrder& order, const PipelineResult& result);
// Of several iterations: from one last gradient of the first virtual stage to that of the next
// iteration, in the mean; 0 of a single one.
double iteration_period(const PipelineOrder& order, const PipelineResult& result);

}  // namespace orrery::sim
