// SPDX-License-Identifier: Apache-2.0
// The arrangements whose tensor-parallel groups are over GPUs of several pools in the same nodes.
#include <algorithm>
#include <cmath>

#include "base/math.hpp"
#include "search/mixed/space.hpp"
#include "search/space/expert_degrees.hpp"

namespace orrery::search {

namespace {

constexpr double kFullShare = 1000;  // of the fastest GPU

// Whether every rank holds a part of all that shares cut.
bool leaves_none_out(const models::Network& network, const plan::TensorShares& shares) {
  for (const models::Block& block : network.blocks) {
    for (const models::Tensor& tensor : block.tensors) {
      for (const models::Dim& dim : tensor.dims) {
        for (int rank = 0; plan::is_cut_by_shares(dim.var) && rank < shares.ranks(); ++rank) {
          if (plan::share_extent(shares, rank, dim, dim.extent) == 0) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

}  // namespace

// Groups of the same GPUs: a part of every pool's GPUs of a node, down to one of each.
void MixedSpace::add_teams(const std::vector<int>& pools) {
  if (!constraints_.admits("cp", 1) || !constraints_.admits("ep", 1)) {
    return;
  }
  for (const std::int64_t parts : divisors(gpus_of_every_node(base_, pools))) {
    Arrangement one;
    for (const int pool : pools) {
      one.team.insert(one.team.end(), static_cast<std::size_t>(gpus_of_node(pool) / parts), pool);
    }
    one.tp = static_cast<int>(one.team.size());
    const std::vector<int> experts =
        expert_tensor_degrees(one.tp, base_.shape.network.spec, constraints_);
    const bool cut = !experts.empty() && experts.front() == 0;  // each by its rank's share
    if (cut && one.tp <= plan::TensorShares::kMaxRanks && constraints_.admits("tp", one.tp)) {
      one.shares = shares_of(one);
      const std::int64_t nodes = gpus_of(pools.front()) / gpus_of_node(pools.front());
      if (!one.shares.empty()) {
        add_team(one, parts * nodes);
      }
    }
  }
}

// Equal ones, and those by the speed of every GPU in the kernels of a group with equal shares.
std::vector<plan::TensorShares> MixedSpace::shares_of(const Arrangement& one) {
  const plan::TensorShares equal(std::vector<int>(one.team.size(), 1));
  if (!leaves_none_out(base_.shape.network, equal)) {
    return {};  // fewer units than ranks
  }
  std::vector<double> speed;
  for (const int pool : one.team) {
    plan::BlockPlan block = block_of(one, MixedLayout());
    block.tensor_shares = equal;
    plan::BlockCosts& costs = simulator_.costs(static_cast<std::size_t>(pool));
    Seconds kernels;
    for (const int index : base_.shape.network.chain) {
      const plan::BlockCost& cost = costs.of(index, block, one.micro_batch);
      kernels += cost.forward.compute + cost.backward.compute;
    }
    speed.push_back(1.0 / kernels.value());
  }
  const double most = *std::max_element(speed.begin(), speed.end());
  std::vector<int> by_speed;
  for (const double of_rank : speed) {
    by_speed.push_back(std::max(1, static_cast<int>(std::lround(kFullShare * of_rank / most))));
  }
  std::vector<plan::TensorShares> tried;
  const auto add = [&](const char* name, const plan::TensorShares& shares) {
    if (constraints_.admits("tensor_shares", name) &&
        leaves_none_out(base_.shape.network, shares)) {
      tried.push_back(shares);
    }
  };
  add("equal", equal);
  add("by-speed", plan::TensorShares(by_speed));
  return tried;
}

// All replicas alike, every stage on a team.
void MixedSpace::add_team(Arrangement one, std::int64_t teams) {
  for (std::int64_t dp = 1; dp <= teams; ++dp) {
    const std::int64_t pp = teams / dp;
    if (base_.shape.batch % dp != 0 || pp > num_layers()) {
      continue;
    }
    one.dp = static_cast<int>(dp);
    one.pp = static_cast<int>(pp);
    one.runs = {one.pp};
    plan::ReplicaGroup group;
    group.replicas = one.dp;
    group.pools.assign(static_cast<std::size_t>(pp), one.team.front());
    group.teams.assign(static_cast<std::size_t>(pp), one.team);
    for (const std::int64_t micro_batch : divisors(base_.shape.batch / dp)) {
      one.micro_batch = micro_batch;
      group.micro_batches = base_.shape.batch / (dp * micro_batch);
      one.groups = {group};
      if (admits(one)) {
        add(one);
      }
    }
  }
}

}  // namespace orrery::search
