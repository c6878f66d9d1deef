// SPDX-License-Identifier: Apache-2.0
// What the passes of a plan's pipeline cost: forwards, backwards and transfers of every virtual
// stage; of split backwards the part of the kernels that compute weight gradients; of an output
// layer over all stages its shards and the collectives between its passes, which run beside the
// layers. Schedules that plan with times get the same ones, without data-parallel traffic.
#pragma once

#include <vector>

#include "plan/stage.hpp"
#include "sim/pipeline.hpp"

namespace orrery::plan {

// Times of the weight gradients in the backward of one virtual stage.
SimTime weight_grad_time(const StageContent& content, const Plan& plan, BlockCosts& costs,
                         const StageCost& stage);

// `sends` as of transfers(); weight_grads per virtual stage, or empty for fused backwards.
sim::PipelineCosts pipeline_costs(const Plan& plan, const std::vector<StageCost>& stages,
                                  const std::vector<SimTime>& sends,
                                  const std::vector<SimTime>& weight_grads);

// Adds the latencies of the order's edges: broadcast of the last hidden state, all-reduce of the
// softmax statistics, reduction of the input gradient.
void add_edge_latencies(const Plan& plan, const sim::PipelineOrder& order,
                        const std::vector<StageCost>& stages, const BlockCosts& costs,
                        sim::PipelineCosts& passes);

// The plan's order of passes.
sim::PipelineOrder pipeline_order(const Plan& plan, BlockCosts& costs);

}  // namespace orrery::plan
