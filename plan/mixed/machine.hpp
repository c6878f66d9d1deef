// SPDX-License-Identifier: Apache-2.0
// What a simulation of mixed clusters keeps between plans: the costs of blocks on every pool, and
// of the networks between pools.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/mixed/plan.hpp"
#include "plan/stage/order_cache.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stage/transfers.hpp"

namespace orrery::plan {

// A pool, or the network across several, as a plan of one kind of nodes sees it.
struct NodeKind {
  // `devices` by tensor-parallel rank, where those are GPUs of several kinds.
  explicit NodeKind(Plan view_of, std::vector<costmodel::DeviceModel> devices = {})
      : view(std::move(view_of)), costs(view, std::move(devices)) {
    transfers.emplace(costs);
  }
  void set_factors(const CostFactors& factors) {
    costs.set_factors(factors);
    transfers.emplace(costs);  // those known are of another draw
  }
  Plan view;
  BlockCosts costs;
  SplitBackwards splits;
  std::optional<TransferTimes> transfers;
};

class KindsOfNodes {
 public:
  explicit KindsOfNodes(const MixedPlan& plan);

  std::size_t size() const { return pools_.size(); }
  NodeKind& pool(std::size_t index) { return *pools_[index]; }
  NodeKind& pool(int index) { return *pools_[static_cast<std::size_t>(index)]; }
  // At most so many GPUs of a node take part.
  NodeKind& across(const std::vector<int>& pools, int gpus_per_node);
  // Nodes with GPUs of several kinds, seen by a stage whose tensor-parallel ranks are on these
  // pools.
  NodeKind& team(const std::vector<int>& pools_of_ranks);
  // A pool, or a team, as a stage sees it whose replicas share experts with unlike ones, `others`:
  // layer by layer they wait for each other. `between` has the network that their tokens take
  // (data_costs() of the device).
  NodeKind& sharing_experts(const std::vector<int>& ranks, const BlockCosts& between,
                            const std::vector<std::vector<int>>& others);
  // The network that sums the gradients of a pipeline device; null: its pool's own.
  const BlockCosts* data_costs(const MixedPlan& plan, int device);
  // Points the views of all pools at a plan whose replicas take so many micro-batches.
  void set_views(const MixedPlan& plan, std::int64_t micro_batches);
  // Lists that do not depend on times.
  OrderCache& orders() { return orders_; }
  void set_factors(const CostFactors& factors);

 private:
  std::unique_ptr<NodeKind> make_team(const std::vector<int>& pools_of_ranks);

  std::shared_ptr<const MixedMachine> machine_;
  Plan shape_;
  std::vector<std::unique_ptr<NodeKind>> pools_;
  std::map<std::pair<std::vector<int>, int>, std::unique_ptr<NodeKind>> across_;
  std::map<std::vector<int>, std::unique_ptr<NodeKind>> teams_;
  // By ranks, those they share with (none: not yet made to wait) and the network between.
  using Sharing = std::tuple<std::vector<int>, std::vector<std::vector<int>>, const BlockCosts*>;
  std::map<Sharing, std::unique_ptr<NodeKind>> sharing_;
  OrderCache orders_;
  std::optional<CostFactors> factors_;
};

}  // namespace orrery::plan
