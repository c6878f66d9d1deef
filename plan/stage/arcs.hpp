// SPDX-License-Identifier: Apache-2.0
// Schedules that run the gradients of a layer on other devices than its forward (`layerpipe`) in
// plans. Of a virtual stage forwards, input gradients, and weight gradients with updates are each
// on one device, and what they need travels: all that a forward saves goes on to the device of its
// input gradient as soon as it is made and waits there; what the weight gradient reads (Kept) goes
// on to that of the weight gradient; the updated parameters come back to the other two. Messages
// run beside the passes; no pace is faster than the link of the busiest device.
// Memory: the device of the input gradient holds the versions in use and what the micro-batches
// that the update's edge admits have saved; that of the weight gradient gradients, optimizer and
// what it reads; that of the forward parameters and one micro-batch. The paper (LayerPipe, arXiv
// 2108.06629) states nothing of either; this is the least that its arcs need.
#pragma once

#include <string>
#include <vector>

#include "plan/stage/live_counts.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stage/transfers.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

// "" when the plan's network and layout suit its schedule, else the smallest change.
std::string arcs_problem(const Plan& plan);

// Gradients between the devices that make them, and the order's edges: activations, what weight
// gradients read, parameters. `kept`: by virtual stage.
void add_arc_transfers(const Plan& plan, const sim::PipelineOrder& order,
                       const std::vector<StageCost>& stages,
                       const std::vector<SplitBackwards::Kept>& kept, const BlockCosts& costs,
                       sim::PipelineCosts& passes);

// What devices hold; `versions`: of parameters, by virtual stage.
std::vector<LiveCounts> arc_counts(const sim::PipelineOrder& order,
                                   const std::vector<int>& versions);

// The messages of a micro-batch, in or out, of the device with most.
SimTime busiest_link(const sim::PipelineOrder& order, const sim::PipelineCosts& passes);

}  // namespace orrery::plan
