// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/transfers.hpp"

#include <algorithm>
#include <cstdlib>

#include "plan/block_rules.hpp"
#include "plan/modules.hpp"
#include "plan/packs.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/servers.hpp"

namespace orrery::plan {

namespace {

// Nodes between two pipeline devices; 0 when they share one. Where ranks of a device lie on several
// nodes, some are one node farther from those they send to than others, and the stage waits for
// them: those nearest to the end of their node.
int nodes_apart(const Plan& plan, int device_a, int device_b) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const std::int64_t ranks = std::int64_t{layout.tp} * layout.cp * plan.dp;
  const std::int64_t gpus = plan.cluster.node.gpus;
  const std::int64_t first = ranks * std::min(device_a, device_b) % gpus;  // place in its node
  const std::int64_t nearest = std::min(first + ranks, gpus) - 1;
  return static_cast<int>((nearest + ranks * std::abs(device_a - device_b)) / gpus);
}

// Message, then the gather that puts its parts together again.
SimTime transfer_time(const Plan& plan, const BlockCosts& costs, ByteCount bytes, int parts,
                      int apart) {
  const int senders = plan.cluster.node.gpus;
  const Bytes part = bytes.bytes() * (1.0 / parts);
  const Seconds time =
      costs.collectives().send_receive(part, apart == 0, senders, std::max(1, apart));
  const Seconds message =
      costs.scaled(apart == 0 ? CostClass::IntraNode : CostClass::InterNode, time);
  return to_sim_time(message) + gather_of_parts(plan, costs, bytes, parts);
}

}  // namespace

int parts_sent(const Plan& plan, const BlockPlan& layout) {
  return plan.execution.split_transfers && replicates_stream(layout) ? layout.tp : 1;
}

SimTime gather_of_parts(const Plan& plan, const BlockCosts& costs, ByteCount bytes, int parts) {
  if (parts == 1) {
    return SimTime{};
  }
  const auto group = costmodel::make_group(parts, 1, plan.cluster.node.gpus);
  const Seconds gather = costs.collectives().time(sim::CommKind::AllGather, bytes.bytes(), group);
  return to_sim_time(costs.scaled(group, gather));
}

SimTime TransferTimes::of(const Plan& plan, ByteCount bytes, int parts, int device_a,
                          int device_b) {
  if (device_a == device_b) {
    return SimTime{};
  }
  const int apart = nodes_apart(plan, device_a, device_b);
  const Key key{bytes.value(), parts, apart};
  if (latest_ == known_.end() || latest_->first != key) {
    bool is_new = false;
    std::tie(latest_, is_new) = known_.try_emplace(key);
    if (is_new) {
      latest_->second = transfer_time(plan, costs_, bytes, parts, apart);
    }
  }
  return latest_->second;
}

SimTime features_time(const Plan& plan, const BlockCosts& costs,
                      const std::vector<StageCost>& stages, const sim::PipelineOrder& order) {
  SimTime sum;
  if (!schedule_traits(plan).fills_frozen) {
    return sum;
  }
  TransferTimes known(costs);
  const int parts = parts_sent(plan, plan.blocks.front().layout);
  const ByteCount bytes = stages[plan.stage_blocks.size()].boundary;
  const bool both = schedule_traits(plan).cascades;  // another backbone begins on the last device
  for (const sim::Chain& chain : order.chains) {
    if (chain.role != sim::Role::Frozen) {
      continue;
    }
    const int device = order.device_of[static_cast<std::size_t>(chain.first)];
    const int shares = chain.units / frozen_portions(plan.network);
    for (const int reader : {0, plan.pp - 1}) {
      if (reader != device && (reader == 0 || both)) {
        sum += known.of(plan, bytes, parts, device, reader) * shares;
      }
    }
  }
  return sum;
}

std::vector<SimTime> transfers(const Plan& plan, const BlockCosts& costs,
                               const std::vector<StageCost>& stages,
                               const std::vector<std::uint16_t>& device_of) {
  TransferTimes known(costs);
  std::vector<SimTime> times;
  // A second chain begins where the first ends; shards of an output layer stand beside the chain.
  const std::size_t chain = plan.stage_blocks.size();
  const ScheduleTraits traits = schedule_traits(plan);
  const std::size_t second = traits.cascades ? static_cast<std::size_t>(plan.pp) : chain;
  int position = 0;
  for (std::size_t stage = 0; stage + 1 < stages.size(); ++stage) {
    position = stage % chain == 0 ? 0 : position;
    position += plan.stage_blocks[stage % chain];
    const bool within = stage + 1 < chain || traits.two_directions;
    if (!within || (stage + 1) % chain == 0 || stage + 1 == second) {
      times.push_back(SimTime{});
      continue;
    }
    const int parts = parts_sent(plan, plan.layout_of(position - 1));
    times.push_back(
        known.of(plan, stages[stage].boundary, parts, device_of[stage], device_of[stage + 1]));
  }
  return times;
}

}  // namespace orrery::plan
