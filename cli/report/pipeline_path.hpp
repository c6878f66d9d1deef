// SPDX-License-Identifier: Apache-2.0
// The critical path of a pipeline run: from the pass that ends last back to time zero, each pass to
// what released it - the pass before it on its device or the one whose output it waited for. Linear
// in the number of passes.
#pragma once

#include <vector>

#include "plan/simulation/simulate.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::cli {

struct PipelinePath {
  std::vector<SimTime> on_device;  // time of passes of each device on the path
  SimTime transfers;               // between devices
  SimTime total() const;           // the makespan
};

// Whether an iteration has such a path: recorded, and not running into the next one as those of
// asynchronous schedules and of post-validation do.
bool has_path(const plan::Plan& plan, const plan::Simulation& simulation);

// `result` must have been evaluated with record_spans.
PipelinePath pipeline_path(const sim::PipelineOrder& order, const sim::PipelineResult& result);

}  // namespace orrery::cli
