// SPDX-License-Identifier: Apache-2.0
// What a forward and a backward take as one: of like layers from one and two of them, of stages
// with unlike layers from all steps of both.
#include <algorithm>
#include <utility>

#include "base/random.hpp"
#include "plan/block/cost.hpp"
#include "plan/block/joined_steps.hpp"

namespace orrery::plan {

namespace {

constexpr auto kRoutedAxis = static_cast<std::size_t>(Axis::Expert);

SimTime kernels_of(const BlockCost& cost) {
  const Seconds alone = cost.forward.exposed[kRoutedAxis] + cost.backward.exposed[kRoutedAxis];
  return to_sim_time(cost.forward.device + cost.backward.device - alone);
}

void append(const std::vector<Step>& layer, int count, std::vector<Step>& list) {
  for (int index = 0; index < count; ++index) {
    list = in_turn(std::move(list), layer);
  }
}

}  // namespace

SimTime BlockCost::least_joined() const {
  const SimTime exchanges = to_sim_time(forward.routed + backward.routed);
  return std::min(forward.time + backward.time,
                  std::max({kernels_of(*this), exchanges, forward.time, backward.time}));
}

SimTime BlockCost::most_hidden_beside_any() const {
  return std::max(SimTime{}, forward.time + backward.time - kernels_of(*this));
}

const BlockCosts::JoinedLayers& BlockCosts::joined_layers(int block, const BlockPlan& layout,
                                                          std::int64_t micro_batch) {
  const Key key = key_of(block, layout, micro_batch);
  const auto [slot, is_new] = joined_.try_emplace(key);
  if (is_new) {
    const BlockCost& cost = of(block, layout, micro_batch);
    if (devices_.empty() && cost.forward.routed.value() > 0) {
      slot->second = join_layers(steps_of(key), cost);
    }
  }
  return slot->second;
}

// The host still issues both passes.
BlockCosts::Joined BlockCosts::saved_by(const BlockCost& cost, SimTime time,
                                        SimTime exposed) const {
  PassCost issued;
  issued.host = cost.forward.host + cost.backward.host;
  const SimTime apart = cost.forward.time + cost.backward.time;
  const SimTime together = std::max({time, with_host(issued).time, cost.least_joined()});
  const SimTime hidden = std::max(SimTime{}, apart - together);
  const SimTime alone =
      to_sim_time(cost.forward.exposed[kRoutedAxis] + cost.backward.exposed[kRoutedAxis]);
  return {hidden, std::max(hidden, alone - std::max(SimTime{}, exposed))};
}

BlockCosts::JoinedLayers BlockCosts::join_layers(const BlockSteps& steps,
                                                 const BlockCost& cost) const {
  const std::vector<Step> forward = scaled(steps.forward);
  const std::vector<Step> backward = scaled(in_turn(steps.recompute, steps.backward));
  const JoinedPasses one = join_passes(forward, backward, device_);
  const JoinedPasses two =
      join_passes(in_turn(forward, forward), in_turn(backward, backward), device_);
  return {saved_by(cost, one.time, one.exposed),
          saved_by(cost, two.time - one.time, two.exposed - one.exposed)};
}

BlockCosts::Joined BlockCosts::joined_stages(const std::vector<LayerRun>& forward,
                                             const std::vector<LayerRun>& backward) {
  if (forward.empty() || backward.empty()) {
    return {};
  }
  LayerRun alike = forward.front();
  alike.count = backward.front().count;
  if (forward.size() == 1 && backward.size() == 1 && alike == backward.front()) {
    const auto& [first, next] = joined_layers(alike.block, alike.layout, alike.micro_batch);
    const int more = std::min(forward.front().count, alike.count) - 1;
    return {first.hidden + next.hidden * more, first.covered + next.covered * more};
  }
  const std::uint64_t pair = (std::uint64_t{number_of(forward)} << 32) | number_of(backward);
  const auto known = joined_stages_.find(pair);
  if (known != joined_stages_.end()) {
    return known->second;
  }
  return joined_stages_.emplace(pair, join_stages(forward, backward)).first->second;
}

std::size_t BlockCosts::LayersHash::operator()(const std::vector<LayerRun>& layers) const {
  std::uint64_t hash = 0;
  for (const LayerRun& run : layers) {
    const std::size_t layer = KeyHash()({run.block, run.layout, run.micro_batch, {}});
    hash = mix64(hash ^ layer ^ static_cast<std::uint64_t>(run.count));
  }
  return hash;
}

std::uint32_t BlockCosts::number_of(const std::vector<LayerRun>& layers) {
  const auto next = static_cast<std::uint32_t>(layer_lists_.size());
  return layer_lists_.try_emplace(layers, next).first->second;
}

BlockCosts::Joined BlockCosts::join_stages(const std::vector<LayerRun>& forward,
                                           const std::vector<LayerRun>& backward) {
  BlockCost cost;
  const auto add = [&](const LayerRun& run, PassCost BlockCost::*pass) {
    const PassCost& layer = of(run.block, run.layout, run.micro_batch).*pass;
    for (int index = 0; index < run.count; ++index) {
      cost.*pass = cost.*pass + layer;
    }
  };
  for (const LayerRun& run : forward) {
    add(run, &BlockCost::forward);
  }
  for (auto run = backward.rbegin(); run != backward.rend(); ++run) {
    add(*run, &BlockCost::backward);
  }
  if (!devices_.empty() || cost.forward.routed.value() + cost.backward.routed.value() <= 0) {
    return {};
  }
  std::vector<Step> forward_steps;
  std::vector<Step> backward_steps;
  for (const LayerRun& run : forward) {
    append(scaled(steps_of(run.block, run.layout, run.micro_batch).forward), run.count,
           forward_steps);
  }
  for (auto run = backward.rbegin(); run != backward.rend(); ++run) {
    const BlockSteps steps = steps_of(run->block, run->layout, run->micro_batch);
    append(scaled(in_turn(steps.recompute, steps.backward)), run->count, backward_steps);
  }
  const JoinedPasses joined = join_passes(forward_steps, backward_steps, device_);
  return saved_by(cost, joined.time, joined.exposed);
}

}  // namespace orrery::plan
