// SPDX-License-Identifier: Apache-2.0
// Iterations of zero-bubble schedules that follow each other without a meeting at the gradient norm
// (Execution::post_validation, sim/orders/post_validation.hpp). A device that has reduced its
// gradients adds them to the state of the norm, which travels along the devices, updates at once
// and begins its next iteration. An update that the whole norm would have changed is made again;
// that is rare and left out. Where the first and the last stage share a table, its gradients are
// added up beside the weight gradients that are left.
#pragma once

#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

// Whether the plan's schedule can validate afterwards, its optimizer is on the devices and no layer
// between the first and the last stage shares their table.
bool can_validate_afterwards(const Plan& plan);
// Whether it does.
bool validates_afterwards(const Plan& plan);

// Iterations that follow each other, reductions, updates and gathers included, with spans.
struct ValidatedRun {
  SimTime period;  // from one iteration to the next in steady state
  sim::PipelineOrder order;
  sim::PipelineResult pipeline;
};

// `order` and `passes` are those of one iteration.
ValidatedRun run_validated(const Plan& plan, const sim::PipelineOrder& order,
                           const std::vector<StageCost>& stages, sim::PipelineCosts passes,
                           BlockCosts& costs);

}  // namespace orrery::plan
