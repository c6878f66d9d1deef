// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/capacity.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace orrery::search {

namespace {

constexpr double kRounding = 1.0 - 1e-9;
constexpr int kHalvings = 60;

// The fastest strategy of a kind of block, part by part.
struct Fastest {
  double forward = std::numeric_limits<double>::infinity();
  double backward = std::numeric_limits<double>::infinity();
  double both = std::numeric_limits<double>::infinity();
  void take(const Fastest& other) {
    forward = std::min(forward, other.forward);
    backward = std::min(backward, other.backward);
    both = std::min(both, other.both);
  }
};

Fastest fastest_of(const std::vector<BlockChoice>& choices) {
  Fastest fastest;
  for (const BlockChoice& one : choices) {
    fastest.take({one.forward, one.backward, one.forward + one.backward});
  }
  return fastest;
}

bool is_layer(const models::Network& network, std::size_t block) {
  return network.blocks[block].kind == models::BlockKind::Layer;
}

}  // namespace

double DeviceFloor::layers_within(double time) const {
  return holds_stage ? std::max(0.0, std::floor((time - fixed) / layer + 1e-9)) : 0.0;
}

std::vector<DeviceFloor> device_floors(const models::Network& network, const MeshCosts& costs,
                                       const Pipeline& pipeline, int devices,
                                       double micro_batches) {
  const plan::StagePlacement& placement = pipeline.placement;
  const std::size_t copies = placement.two_directions ? 2 : 1;
  const auto stages = static_cast<std::size_t>(devices) * static_cast<std::size_t>(pipeline.chunks);
  const double units = micro_batches / static_cast<double>(copies) * kRounding;
  const auto front = static_cast<std::size_t>(network.chain.front());
  const auto back = static_cast<std::size_t>(network.chain.back());
  Fastest layer;
  Fastest inner;  // of what may be in a stage between the first and the last
  for (std::size_t block = 0; block < network.blocks.size(); ++block) {
    if (costs.count[block] > 0) {
      const Fastest fastest = fastest_of(costs.choices[block]);
      const bool at_end = costs.count[block] == 1 && (block == front || block == back);
      inner.take(at_end ? Fastest{} : fastest);
      layer.take(is_layer(network, block) ? fastest : Fastest{});
    }
  }
  const auto end_work = [&](std::size_t block) {
    return is_layer(network, block) || placement.shares_ends
               ? 0.0
               : fastest_of(costs.choices[block]).both * units;
  };
  std::vector<DeviceFloor> floors(static_cast<std::size_t>(devices));
  std::vector<std::size_t> first(floors.size(), stages);
  for (std::size_t index = 0; index < stages * copies; ++index) {
    const std::size_t device = placement.device_of[index];
    DeviceFloor& floor = floors[device];
    const std::size_t stage = index % stages;
    floor.holds_stage = true;
    floor.layer = layer.both * units;
    floor.fixed += (stage == 0 ? end_work(front) : 0.0);
    floor.fixed += (stage + 1 == stages && stages > 1 ? end_work(back) : 0.0);
    first[device] = std::min(first[device], stage);
  }
  if (copies == 1 && placement.flushes && !placement.shares_ends) {
    // Every stage before has a block; the first one the chain's first.
    for (std::size_t device = 0; device < floors.size(); ++device) {
      for (std::size_t stage = 0; stage < std::min(first[device], stages - 1); ++stage) {
        const Fastest pass = stage == 0 ? fastest_of(costs.choices[front]) : inner;
        const double gradient = placement.whole_backwards ? pass.backward : 0.0;
        floors[device].fixed += (pass.forward + gradient) * kRounding;
      }
    }
  }
  for (DeviceFloor& floor : floors) {
    floor.fixed += placement.flushes ? costs.optimizer * kRounding : 0.0;
  }
  return floors;
}

double capacity_bound(const models::Network& network, const MeshCosts& costs,
                      const Pipeline& pipeline, int devices, double micro_batches) {
  const std::vector<DeviceFloor> floors =
      device_floors(network, costs, pipeline, devices, micro_batches);
  double layers = 0;
  for (std::size_t block = 0; block < network.blocks.size(); ++block) {
    layers += is_layer(network, block) ? costs.count[block] : 0;
  }
  if (layers == 0) {
    return 0;
  }
  layers *= pipeline.placement.two_directions ? 2 : 1;
  const auto suffices = [&](double time) {
    double sum = 0;
    for (const DeviceFloor& floor : floors) {
      sum += floor.layers_within(time);
    }
    return sum >= layers;
  };
  double low = 0;
  double high = 0;
  for (const DeviceFloor& floor : floors) {
    high = std::max(high, floor.holds_stage ? floor.fixed + (layers + 1) * floor.layer : 0.0);
  }
  for (int halving = 0; halving < kHalvings; ++halving) {
    const double middle = (low + high) / 2;
    (suffices(middle) ? high : low) = middle;
  }
  return low;
}

double chain_bound(const models::Network& network, const MeshCosts& costs,
                   const Pipeline& pipeline) {
  const plan::StagePlacement& placement = pipeline.placement;
  if (!placement.flushes || placement.shares_ends || placement.fills_frozen ||
      placement.joins_passes || placement.spreads_attention) {
    return 0;
  }
  double chain = 0;
  for (std::size_t block = 0; block < network.blocks.size(); ++block) {
    double least = std::numeric_limits<double>::infinity();
    for (const BlockChoice& one : costs.choices[block]) {
      // A weight gradient may be left for later.
      const double gradient = placement.whole_backwards ? one.backward : one.input_grad;
      least = std::min(least, one.forward + gradient);
    }
    chain += costs.count[block] > 0 ? costs.count[block] * least : 0.0;
  }
  return chain * kRounding;
}

}  // namespace orrery::search
