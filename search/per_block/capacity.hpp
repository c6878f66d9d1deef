// SPDX-License-Identifier: Apache-2.0
// How many layers a pipeline's devices can work off within a time: blocks are whole, so a device
// has a whole number of them, each of which takes at least its fastest strategy for every
// micro-batch, beside embedding, head, and the wait until the first micro-batch came through the
// stages before and its gradient went back. Where all devices together cannot hold the layers of
// the chain, no plan is that fast. And how long a micro-batch takes alone, which rules out
// pipelines with few of them. Seconds; O(devices x stages); no lists.
#pragma once

#include <vector>

#include "models/network.hpp"
#include "search/per_block/costs.hpp"

namespace orrery::search {

struct DeviceFloor {
  double fixed = 0;  // whatever its layers are
  double layer = 0;  // of one layer
  bool holds_stage = false;
  // Layers at most in a plan that takes no longer than `time`.
  double layers_within(double time) const;
};

std::vector<DeviceFloor> device_floors(const models::Network& network, const MeshCosts& costs,
                                       const Pipeline& pipeline, int devices, double micro_batches);

// No plan is faster: the least time in which all layers have a place.
double capacity_bound(const models::Network& network, const MeshCosts& costs,
                      const Pipeline& pipeline, int devices, double micro_batches);

// No plan is faster: one micro-batch goes through all blocks, and its gradient back through all of
// them. 0 where blocks of a chain may run beside each other.
double chain_bound(const models::Network& network, const MeshCosts& costs,
                   const Pipeline& pipeline);

}  // namespace orrery::search
