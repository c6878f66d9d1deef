// SPDX-License-Identifier: Apache-2.0
// Costs of blocks under a draw of the cost model's errors.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "plan/block/cost.hpp"

namespace orrery::plan {

void BlockCosts::set_factors(const CostFactors& factors) {
  factors_ = factors;
  joined_.clear();
  joined_stages_.clear();
  for (const auto& [key, cost] : cache_) {
    const auto [steps, is_new] = steps_.try_emplace(key);
    if (is_new || !expert_peers_.empty()) {
      steps->second = lower(key);
    }
    time_passes(key, steps->second, *cost);
  }
}

Seconds BlockCosts::scaled(CostClass kind, Seconds time) const {
  return factors_ ? factors_->scaled(kind, time) : time;
}

Seconds BlockCosts::scaled(const costmodel::GroupShape& group, Seconds time) const {
  return scaled(class_of(sim::CommKind::None, group), time);
}

std::vector<Step> BlockCosts::scaled(std::vector<Step> steps) const {
  for (Step& step : steps) {
    step.time = scaled(step.cost_class, step.time);
  }
  return steps;
}

PassCost BlockCosts::queue(const std::vector<Step>& steps, Seconds host) const {
  std::vector<Seconds> times;
  times.reserve(steps.size());
  for (const Step& step : steps) {
    times.push_back(scaled(step.cost_class, step.time));
  }
  return queue_on_slowest(steps, times, host);
}

PassCost BlockCosts::queue_on_slowest(const std::vector<Step>& steps,
                                      std::span<const Seconds> times, Seconds host) const {
  if (devices_.empty()) {
    return queue_steps(steps, times, device_, host);
  }
  PassCost slowest;
  const auto length = [](const PassCost& cost) {
    return std::max(to_seconds(cost.time), cost.host);
  };
  for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
    if (rank > 0 && devices_[rank].gpu().name == devices_[rank - 1].gpu().name) {
      continue;
    }
    PassCost cost = queue_steps(steps, times, devices_[rank], host);
    if (rank == 0 || length(slowest) < length(cost)) {
      slowest = cost;
    }
  }
  return slowest;
}

PassCost BlockCosts::with_host(PassCost cost) const {
  const Seconds host = factors_ ? factors_->scaled_host(cost.host) : cost.host;
  cost.time = std::max(cost.time, to_sim_time(host));
  return cost;
}

namespace {

// Times of blocks are added up, as whole picoseconds: those of a micro-batch in all of them must
// be in their range.
void check_range(std::initializer_list<SimTime> passes, std::size_t blocks) {
  Seconds once;
  for (const SimTime pass : passes) {
    once += to_seconds(pass);
  }
  (void)to_sim_time(once * static_cast<double>(blocks));
}

}  // namespace

void BlockCosts::time_passes(const Key& key, const BlockSteps& steps, BlockCost& cost) const {
  const Seconds host =
      host_of_pass(execution_, network_.blocks[static_cast<std::size_t>(key.block)]);
  // Replaying the attention core alone is a few kernels, not a pass.
  const Seconds replay_host = key.layout.recompute == Recompute::Full ? host : Seconds();
  const PassCost forward = queue(steps.forward, host);
  // Nothing stops the host between the recomputation and the backward: while the device is behind
  // in one it issues the other.
  const PassCost replay = queue(steps.recompute, replay_host);
  const PassCost backward = queue(steps.backward, host);
  check_range({forward.time, replay.time, backward.time}, network_.chain.size());
  cost.forward = with_host(forward);
  cost.recompute = with_host(replay);
  cost.backward = with_host(replay + backward);
}

}  // namespace orrery::plan
