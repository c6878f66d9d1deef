// SPDX-License-Identifier: Apache-2.0
// What the passes of a plan's pipeline cost: forwards, backwards and transfers of every virtual
// stage; of split backwards the part of the kernels that compute weight gradients; of an output
// layer over all stages its shards and the collectives between its passes, which run beside the
// layers. Schedules that plan with times get the same ones, without data-parallel traffic.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "plan/stage/split_backward.hpp"
#include "plan/stage/stage.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

// How long the kernels of a stage's pass are waited for, or wait, because of messages that nothing
// hides. A sender waits until its message is there, gathered from parts if it was split. Stages
// that exchange an activation and then a gradient (DeepSpeed's pipeline) are both held up by both,
// but for the first activation and the last gradient of an iteration, which travel alone. Where the
// host waits for the device after a message (Megatron-LM), a pass that begins with one begins with
// an empty queue of kernels.
struct MessageWaits {
  std::vector<SimTime> forward;  // by stage
  std::vector<SimTime> backward;
  std::vector<SimTime> not_first;  // of it, what the first forward is spared
  std::vector<SimTime> not_last;   // and the last backward
};
// Runtimes of schedules that cut backwards keep the host ahead.
MessageWaits message_waits(const Plan& plan, const BlockCosts& costs,
                           const std::vector<StageCost>& stages, const std::vector<SimTime>& sends);

// The virtual stages of a pipeline and the transfers between them.
struct StageChain {
  const std::vector<StageCost>& stages;
  const std::vector<SimTime>& sends;
};
// When the first forward of every stage of one chain can begin; of replicas that run in step, whose
// passes take what the slowest takes.
std::vector<SimTime> first_arrivals(std::span<const StageChain> in_step);

// Sets StageCost::gathers_before: the parameters that a device gathers for the first forwards of
// its virtual stages arrive one after the other, in the order in which they run. O(stages log
// stages).
void queue_gathers(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                   std::vector<StageCost>& stages);

// `sends` as of transfers(); `splits` per virtual stage, or empty for whole backwards. Of passes
// that are joined (plan/stage/joined.hpp) what each takes by itself; `arrivals` of replicas in
// step, else empty.
sim::PipelineCosts separate_costs(const Plan& plan, const BlockCosts& costs,
                                  const std::vector<StageCost>& stages,
                                  const std::vector<SimTime>& sends,
                                  const std::vector<SplitTimes>& splits,
                                  std::vector<SimTime> arrivals = {});
// The same with what each pair of joined passes hides.
sim::PipelineCosts pipeline_costs(const Plan& plan, BlockCosts& costs,
                                  const std::vector<StageCost>& stages,
                                  const std::vector<SimTime>& sends,
                                  const std::vector<SplitTimes>& splits);

// The shortest pass of a stage, where the first or last one may be shorter.
inline SimTime least(const std::vector<SimTime>& passes, const std::vector<SimTime>& extras,
                     std::size_t stage) {
  return passes[stage] + std::min(SimTime{}, extras[stage]);
}

// Adds the latencies of the order's edges: between shards of embedding and head and the stages
// (plan/stage/shared_output.hpp); between modules, of features and their gradients, of which
// `sends` has the transfers.
void add_edge_latencies(const Plan& plan, const sim::PipelineOrder& order,
                        const std::vector<StageCost>& stages, const std::vector<SimTime>& sends,
                        const BlockCosts& costs, sim::PipelineCosts& passes);

// What a schedule that plans with times is given: the passes of every virtual stage without
// data-parallel traffic, on the given devices.
std::vector<sim::PassTimes> pass_times(const Plan& plan,
                                       const std::vector<std::uint16_t>& device_of,
                                       BlockCosts& costs, SplitBackwards& splits);

}  // namespace orrery::plan
