// SPDX-License-Identifier: Apache-2.0
// What the passes of a plan's pipeline cost: forwards, backwards and transfers of every virtual
// stage; of split backwards the part of the kernels that compute weight gradients; of an output
// layer over all stages its shards and the collectives between its passes, which run beside the
// layers. Schedules that plan with times get the same ones, without data-parallel traffic.
#pragma once

#include <vector>

#include "plan/split_backward.hpp"
#include "plan/stage.hpp"
#include "sim/pipeline.hpp"

namespace orrery::plan {

// `sends` as of transfers(); `splits` per virtual stage, or empty for whole backwards.
sim::PipelineCosts pipeline_costs(const Plan& plan, const std::vector<StageCost>& stages,
                                  const std::vector<SimTime>& sends,
                                  const std::vector<SplitTimes>& splits);

// Adds the latencies of the order's edges: broadcast of the last hidden state, all-reduce of the
// softmax statistics, reduction of the input gradient; between modules, of features and their
// gradients, of which `sends` has the transfers.
void add_edge_latencies(const Plan& plan, const sim::PipelineOrder& order,
                        const std::vector<StageCost>& stages, const std::vector<SimTime>& sends,
                        const BlockCosts& costs, sim::PipelineCosts& passes);

// What a schedule that plans with times is given: the passes of every virtual stage without
// data-parallel traffic, on the given devices.
std::vector<sim::PassTimes> pass_times(const Plan& plan,
                                       const std::vector<std::uint16_t>& device_of,
                                       BlockCosts& costs, SplitBackwards& splits);

}  // namespace orrery::plan
