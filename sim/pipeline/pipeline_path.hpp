// SPDX-License-Identifier: Apache-2.0
// The critical path of a pipeline run: from the pass that ends last back to time zero, each pass to
// what released it - the pass before it on its device or the one whose output it waited for, which
// leaves at the end of its block where passes are joined. Linear in the number of passes.
#pragma once

#include <vector>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {

struct PipelinePath {
  std::vector<SimTime> on_device;  // time of passes of each device on the path
  SimTime transfers;               // between devices
  SimTime total() const;           // the makespan
};

// `result` must have been evaluated with record_spans.
PipelinePath pipeline_path(const PipelineOrder& order, const PipelineResult& result);

}  // namespace orrery::sim
