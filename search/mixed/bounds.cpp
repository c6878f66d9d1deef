// SPDX-License-Identifier: Apache-2.0
// Bounds over parts of the space of mixed clusters, and the times of blocks that they are made of.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/math.hpp"
#include "search/mixed/space.hpp"

namespace orrery::search {

namespace {

constexpr double kRounding = 1.0 - 1e-12;  // of doubles must not pass the time itself

}  // namespace

const ChainTimes& MixedSpace::times(int pool, const Arrangement& arrangement,
                                    const MixedLayout& layout) {
  std::vector<std::int64_t> key = {arrangement.team.empty() ? pool : -1,
                                   arrangement.tp,
                                   arrangement.cp,
                                   arrangement.ep,
                                   arrangement.expert_tp,
                                   arrangement.micro_batch,
                                   layout.sequence_parallel ? 1 : 0,
                                   static_cast<std::int64_t>(layout.recompute),
                                   static_cast<std::int64_t>(layout.context)};
  key.insert(key.end(), arrangement.team.begin(), arrangement.team.end());
  const std::vector<int> shares = layout.shares.list();
  key.insert(key.end(), shares.begin(), shares.end());
  const auto [slot, is_new] = times_.try_emplace(std::move(key));
  ChainTimes& chain = slot->second;
  if (is_new) {
    const plan::BlockPlan block = block_of(arrangement, layout);
    plan::BlockCosts& costs = arrangement.team.empty()
                                  ? simulator_.costs(static_cast<std::size_t>(pool))
                                  : simulator_.costs_of_team(arrangement.team);
    chain.forward.emplace_back();
    chain.backward.emplace_back();
    chain.hidden.emplace_back();
    for (const int index : base_.shape.network.chain) {
      const plan::BlockCost& cost = costs.of(index, block, arrangement.micro_batch);
      chain.forward.push_back(chain.forward.back() + cost.forward.time);
      chain.backward.push_back(chain.backward.back() + cost.backward.time);
      chain.hidden.push_back(chain.hidden.back() +
                             std::max(cost.most_hidden(), cost.most_hidden_beside_any()));
    }
  }
  return chain;
}

std::vector<const ChainTimes*> MixedSpace::times_of(const std::vector<int>& pools,
                                                    const Arrangement& arrangement,
                                                    const MixedLayout& layout) {
  std::vector<const ChainTimes*> by_pool(base_.num_pools(), nullptr);
  std::vector<const ChainTimes*> chains;
  for (const int pool : pools) {
    const ChainTimes*& chain = by_pool[static_cast<std::size_t>(pool)];
    if (chain == nullptr) {
      chain = &times(pool, arrangement, layout);
    }
    chains.push_back(chain);
  }
  return chains;
}

Seconds MixedSpace::least_time(const Arrangement& arrangement) {
  Seconds least(-1);
  for (const MixedLayout& layout : layouts(arrangement)) {
    const Seconds time = least_time(arrangement, layout);
    least = least.value() < 0 ? time : std::min(least, time);
  }
  return least;
}

// Linear programming duality: whatever weights y sum to 1 over the devices, a position costs the
// busiest device at least the least weighted time that any device takes for it. The weights here
// are the speeds of the devices.
Seconds MixedSpace::least_time(const Arrangement& arrangement, const MixedLayout& layout) {
  double bound = 0;
  for (const plan::ReplicaGroup& group : arrangement.groups) {
    std::vector<const ChainTimes*> kinds = times_of(group.pools, arrangement, layout);
    double speeds = 0;
    for (const ChainTimes* chain : kinds) {
      speeds += chain->speed();
    }
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    const double of_one = weighted_least(kinds, speeds);
    bound = std::max(bound, of_one * static_cast<double>(group.micro_batches));
  }
  return Seconds(bound * kRounding);
}

// Of one micro-batch on devices whose speeds have this sum.
double MixedSpace::weighted_least(const std::vector<const ChainTimes*>& kinds, double speeds) {
  const bool joined = std::any_of(schedules().begin(), schedules().end(),
                                  [](const Choice& schedule) { return schedule.joins_passes; });
  std::vector<double> weights;
  for (const ChainTimes* kind : kinds) {
    weights.push_back(kind->speed() / speeds);
  }
  double sum = 0;
  for (std::size_t position = 0; position < base_.shape.network.chain.size(); ++position) {
    double least = -1;
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      const SimTime here = kinds[kind]->least(position, position + 1, joined);
      const double time = weights[kind] * to_seconds(here).value();
      least = least < 0 ? time : std::min(least, time);
    }
    sum += least;
  }
  return sum;
}

// By the same duality over all devices of these pools: every micro-batch is on some of them.
Seconds MixedSpace::bound_left_out() {
  double bound = std::numeric_limits<double>::infinity();
  for (auto [pools, one] : left_out_) {
    for (const std::int64_t micro_batch : divisors(base_.shape.batch)) {
      one.micro_batch = micro_batch;
      if (micro_batch == base_.shape.batch || !sets_experts(one) ||
          !constraints_.admits("micro_batch", micro_batch)) {
        continue;  // there are two replicas or more
      }
      for (const MixedLayout& layout : layouts(one)) {
        std::vector<const ChainTimes*> kinds;
        double speeds = 0;
        for (const int pool : pools) {
          kinds.push_back(&times(pool, one, layout));
          speeds += kinds.back()->speed() * static_cast<double>(gpus_of(pool) / one.ranks());
        }
        const auto count = static_cast<double>(base_.shape.batch / micro_batch);
        bound = std::min(bound, weighted_least(kinds, speeds) * count);
      }
    }
  }
  return Seconds(bound * kRounding);
}

// On every device, the way of a micro-batch to its first stage and all its passes.
Seconds MixedSpace::least_time(const Arrangement& arrangement, const MixedLayout& layout,
                               const MixedFamily& family, const std::vector<int>& stages) {
  SimTime bound;
  const bool joined = family.joins_passes;
  for (const plan::ReplicaGroup& group : arrangement.groups) {
    const std::vector<const ChainTimes*> chains = times_of(group.pools, arrangement, layout);
    std::vector<SimTime> busy(group.pools.size());
    std::vector<SimTime> heads(group.pools.size());
    SimTime head;
    std::size_t begin = 0;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      const std::size_t device = family.device_of[stage];
      const ChainTimes& chain = *chains[device];
      const std::size_t end = begin + static_cast<std::size_t>(stages[stage]);
      heads[device] = busy[device] == SimTime{} ? head : heads[device];
      busy[device] += chain.least(begin, end, joined) * group.micro_batches;
      head += chain.forward[end] - chain.forward[begin];
      begin = end;
    }
    for (std::size_t device = 0; device < busy.size(); ++device) {
      bound = std::max(bound, heads[device] + busy[device]);
    }
  }
  return to_seconds(bound) * kRounding;
}

}  // namespace orrery::search
