// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/memory_floor.hpp"

#include <algorithm>

#include "plan/block/states.hpp"
#include "plan/stage/memory.hpp"

namespace orrery::search {
namespace {

// Another block may hold the token table.
ByteCount least_states(const plan::BlockCost& cost, const plan::Plan& view,
                       const std::vector<int>& zero_stages) {
  plan::BlockPlan layout = view.blocks.front().layout;
  const plan::Mesh mesh = plan::mesh_of(layout, view.data_ranks(layout));
  std::optional<ByteCount> least;
  for (const int zero : zero_stages) {
    layout.zero_stage = zero;
    const plan::StateBytes states =
        plan::state_bytes(cost, layout, mesh, view.execution, view.precision,
                          /*without_tied=*/true, view.cluster.node.gpus);
    const ByteCount held = states.held_parameters() + states.gradients + states.optimizer;
    least = least ? std::min(*least, held) : held;
  }
  return least.value_or(ByteCount());
}

}  // namespace

MixedMemoryFloor::MixedMemoryFloor(const plan::MixedPlan& plan, const std::vector<int>& zero_stages,
                                   std::vector<plan::Plan>& views, plan::MixedSimulator& simulator)
    : groups_(plan.groups), pools_(views.size()) {
  for (const plan::ReplicaGroup& group : groups_) {
    for (std::size_t pool = 0; pool < views.size(); ++pool) {
      if (pools_[pool] || !group.uses(static_cast<int>(pool))) {
        continue;
      }
      plan::Plan& view = views[pool];
      plan::set_view(plan, group.micro_batches, view);
      const plan::BlockPlan& layout = view.blocks.front().layout;
      std::vector<ByteCount> of_block;
      std::optional<ByteCount> working;
      for (int block = 0; block < static_cast<int>(view.network.blocks.size()); ++block) {
        const plan::BlockCost& cost =
            simulator.costs(pool).of(block, layout, view.micro_batch_of(layout, block));
        of_block.push_back(least_states(cost, view, zero_stages) + cost.saved);
        working = working ? std::min(*working, cost.working) : cost.working;
      }
      Pool& here = pools_[pool].emplace();
      here.held.emplace_back();
      for (const int block : view.network.chain) {
        here.held.push_back(here.held.back() + of_block[static_cast<std::size_t>(block)]);
      }
      here.room = view.cluster.gpu.memory - plan.shape.memory_reserve - *working -
                  plan::communicator_bytes(view) - plan::context_bytes();
    }
  }
}

// All devices together have room for what the pools that need least of each block need.
ByteCount MixedMemoryFloor::excess() const {
  std::optional<ByteCount> most;
  for (const plan::ReplicaGroup& group : groups_) {
    ByteCount missing;
    std::vector<const Pool*> kinds;
    for (std::size_t device = 0; device < group.pools.size(); ++device) {
      missing -= pool_of(group, device).room;
      kinds.push_back(&pool_of(group, device));
    }
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    for (std::size_t position = 0; position + 1 < kinds.front()->held.size(); ++position) {
      ByteCount least = kinds.front()->of(position, position + 1);
      for (const Pool* kind : kinds) {
        least = std::min(least, kind->of(position, position + 1));
      }
      missing += least;
    }
    const ByteCount of_one(missing.value() / static_cast<std::int64_t>(group.pools.size()));
    most = most ? std::max(*most, of_one) : of_one;
  }
  return *most;
}

ByteCount MixedMemoryFloor::excess_of_runs(const std::vector<int>& runs,
                                           const std::vector<int>& blocks) const {
  std::optional<ByteCount> most;
  std::size_t device = 0;
  std::size_t begin = 0;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const Pool& pool = pool_of(groups_.front(), device);
    const std::size_t end = begin + static_cast<std::size_t>(blocks[run]);
    const ByteCount excess = ByteCount(pool.of(begin, end).value() / runs[run]) - pool.room;
    most = most ? std::max(*most, excess) : excess;
    begin = end;
    device += static_cast<std::size_t>(runs[run]);
  }
  return *most;
}

ByteCount MixedMemoryFloor::excess_of_stages(const MixedFamily& family,
                                             const std::vector<int>& stages) const {
  std::optional<ByteCount> most;
  for (const plan::ReplicaGroup& group : groups_) {
    std::vector<ByteCount> held(group.pools.size());
    std::size_t begin = 0;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      const std::size_t device = family.device_of[stage];
      const std::size_t end = begin + static_cast<std::size_t>(stages[stage]);
      held[device] += pool_of(group, device).of(begin, end);
      begin = end;
    }
    for (std::size_t device = 0; device < held.size(); ++device) {
      const ByteCount excess = held[device] - pool_of(group, device).room;
      most = most ? std::max(*most, excess) : excess;
    }
  }
  return *most;
}

}  // namespace orrery::search
