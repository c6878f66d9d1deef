// SPDX-License-Identifier: Apache-2.0
#include "plan/mixed/machine.hpp"

#include <algorithm>
#include <limits>

namespace orrery::plan {

namespace {

std::vector<std::unique_ptr<NodeKind>> kinds_of(const MixedPlan& plan) {
  std::vector<std::unique_ptr<NodeKind>> pools;
  for (std::size_t pool = 0; pool < plan.num_pools(); ++pool) {
    pools.push_back(std::make_unique<NodeKind>(pool_view(plan, pool)));
  }
  return pools;
}

}  // namespace

KindsOfNodes::KindsOfNodes(const MixedPlan& plan)
    : machine_(plan.machine),
      shape_(plan.shape),
      pools_(kinds_of(plan)),
      orders_(pools_.front()->costs) {}

NodeKind& KindsOfNodes::across(const std::vector<int>& pools, int gpus_per_node) {
  std::unique_ptr<NodeKind>& slot = across_[{pools, gpus_per_node}];
  if (!slot) {
    Plan view = shape_;
    view.cluster = topologies::network_across(machine_->cluster, pools, gpus_per_node);
    // The profile of the pool whose nodes these are.
    for (const int pool : pools) {
      const auto index = static_cast<std::size_t>(pool);
      if (machine_->cluster.pools[index].cluster.node.name == view.cluster.node.name) {
        view.profile = machine_->profiles[index];
      }
    }
    slot = std::make_unique<NodeKind>(std::move(view));
    if (factors_) {
      slot->set_factors(*factors_);
    }
  }
  return *slot;
}

std::unique_ptr<NodeKind> KindsOfNodes::make_team(const std::vector<int>& pools_of_ranks) {
  std::vector<int> kinds = pools_of_ranks;
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  Plan view = across(kinds, std::numeric_limits<int>::max()).view;
  view.blocks = shape_.blocks;
  std::vector<costmodel::DeviceModel> devices;
  for (const int pool : pools_of_ranks) {
    devices.push_back(pools_[static_cast<std::size_t>(pool)]->costs.device());
  }
  return std::make_unique<NodeKind>(std::move(view), std::move(devices));
}

NodeKind& KindsOfNodes::team(const std::vector<int>& pools_of_ranks) {
  std::unique_ptr<NodeKind>& slot = teams_[pools_of_ranks];
  if (!slot) {
    slot = make_team(pools_of_ranks);
    if (factors_) {
      slot->set_factors(*factors_);
    }
  }
  return *slot;
}

NodeKind& KindsOfNodes::sharing_experts(const std::vector<int>& ranks, const BlockCosts& between,
                                        const std::vector<std::vector<int>>& others) {
  std::unique_ptr<NodeKind>& slot = sharing_[{ranks, others, &between}];
  if (!slot) {
    slot =
        ranks.size() == 1 ? std::make_unique<NodeKind>(pool(ranks.front()).view) : make_team(ranks);
    slot->costs.set_expert_costs(&between);
    std::vector<const BlockCosts*> costs;
    for (const std::vector<int>& other : others) {
      costs.push_back(&sharing_experts(other, between, {}).costs);
    }
    slot->costs.set_expert_peers(std::move(costs));
    if (factors_) {
      slot->set_factors(*factors_);
    }
  }
  return *slot;
}

const BlockCosts* KindsOfNodes::data_costs(const MixedPlan& plan, int device) {
  const std::vector<int> pools = plan.pools_of_device(device);
  if (pools.size() < 2) {
    return nullptr;
  }
  if (machine_->cluster.in_same_nodes(pools)) {
    return &across(pools, std::numeric_limits<int>::max()).costs;
  }
  const BlockPlan& layout = plan.shape.blocks.front().layout;
  int gpus_per_node = std::numeric_limits<int>::max();
  for (const int pool : pools) {
    int replicas = 0;
    int ranks = 0;  // of a replica on this pool
    for (const ReplicaGroup& group : plan.groups) {
      const std::vector<int> of = group.ranks_of(static_cast<std::size_t>(device));
      const auto here = static_cast<int>(std::count(of.begin(), of.end(), pool));
      replicas += here > 0 ? group.replicas : 0;
      ranks = std::max(ranks, layout.cp * (of.size() == 1 ? here * layout.tp : here));
    }
    const int node = machine_->cluster.pools[static_cast<std::size_t>(pool)].cluster.node.gpus;
    const int on_node = std::min(replicas, std::max(1, node / ranks));
    gpus_per_node = std::min({gpus_per_node, node, on_node * ranks});
  }
  return &across(pools, gpus_per_node).costs;
}

void KindsOfNodes::set_views(const MixedPlan& plan, std::int64_t micro_batches) {
  for (const auto& pool : pools_) {
    set_view(plan, micro_batches, pool->view);
  }
  for (const auto& [pools, kind] : teams_) {
    set_view(plan, micro_batches, kind->view);
  }
  for (const auto& [key, kind] : sharing_) {
    set_view(plan, micro_batches, kind->view);
  }
}

void KindsOfNodes::set_factors(const CostFactors& factors) {
  factors_ = factors;
  for (const auto& pool : pools_) {
    pool->set_factors(factors);
  }
  for (const auto& [key, kind] : across_) {
    kind->set_factors(factors);
  }
  for (const auto& [key, kind] : teams_) {
    kind->set_factors(factors);
  }
  for (const auto& [key, kind] : sharing_) {
    kind->set_factors(factors);
  }
}

}  // namespace orrery::plan
