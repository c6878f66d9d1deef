// SPDX-License-Identifier: Apache-2.0
#include "plan/transfers.hpp"

#include <algorithm>
#include <cstdlib>

namespace orrery::plan {

namespace {

// Nodes between two pipeline devices; 0 when they share one.
int nodes_apart(const Plan& plan, int device_a, int device_b) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const std::int64_t ranks = std::int64_t{layout.tp} * layout.cp * plan.dp;
  const std::int64_t gpus = plan.cluster.node.gpus;
  return static_cast<int>(std::abs(ranks * device_a / gpus - ranks * device_b / gpus));
}

SimTime transfer_time(const Plan& plan, const BlockCosts& costs, ByteCount bytes, int device_a,
                      int device_b) {
  if (device_a == device_b) {
    return SimTime{};
  }
  const topologies::Node& node = plan.cluster.node;
  const int sharing = node.scale_out.nics > 0 ? std::max(1, node.gpus / node.scale_out.nics) : 1;
  const int apart = nodes_apart(plan, device_a, device_b);
  const Seconds time =
      costs.collectives().send_receive(bytes.bytes(), apart == 0, sharing, std::max(1, apart));
  return to_sim_time(
      costs.scaled(apart == 0 ? CostClass::IntraNode : CostClass::InterNode, time));
}

}  // namespace

sim::ScheduleParams schedule_params(const Plan& plan) {
  sim::ScheduleParams params;
  params.stages = plan.pp;
  params.micro_batches = static_cast<int>(plan.num_micro_batches());
  params.chunks = plan.chunks;
  return params;
}

std::vector<SimTime> transfers(const Plan& plan, const BlockCosts& costs,
                               const std::vector<StageCost>& stages,
                               const std::vector<std::uint16_t>& device_of) {
  std::vector<SimTime> times;
  // Shards of an output layer stand beside the chain of layers.
  const std::size_t chain = plan.stage_blocks.size();
  for (std::size_t stage = 0; stage + 1 < stages.size(); ++stage) {
    times.push_back(stage + 1 < chain ? transfer_time(plan, costs, stages[stage].boundary,
                                                      device_of[stage], device_of[stage + 1])
                                      : SimTime{});
  }
  return times;
}

}  // namespace orrery::plan
