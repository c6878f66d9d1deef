// SPDX-License-Identifier: Apache-2.0
// Schedules that copy activations to the host after their forward and back before their backward
// (`pipeoffload`), on a stream in each direction beside the passes. A copy takes what a micro-batch
// keeps on the device over the GPU's share of its link to the host (offload_time.hpp), with what
// blocks offload by themselves, since both cross the same link. Each copy is one pass of a stream,
// so that what is not hidden shows as waiting.
#pragma once

#include <string>
#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

// "" when the cluster has the host memory and the link that the plan's schedule needs.
std::string host_copies_problem(const Plan& plan);

// Adds the passes of the copy streams, which follow the stages in `order`.
void add_host_copies(const Plan& plan, const sim::PipelineOrder& order,
                     const std::vector<StageCost>& stages, sim::PipelineCosts& passes);

}  // namespace orrery::plan
