// SPDX-License-Identifier: Apache-2.0
// A network in equal partitions that live in host memory and are worked on in turn, round after
// round: forward, and for training backward in reverse order, after which a partition's weights and
// gradients travel back. How many are on the device at once, and how many are exchanged together,
// says the policy (Superpipeline's k and k', sim/engine/tiers.hpp).
#pragma once

#include "sim/engine/tiers.hpp"

namespace orrery::sim {

struct Partitions {
  int count = 0;
  ByteCount weights;    // of a partition
  ByteCount gradients;  // of it that stay beside the weights, and travel back
  SimTime forward;
  SimTime backward;
  bool training = false;
  ByteCount resident() const { return weights + gradients; }
};

struct PartitionRound {
  Seconds time;    // in the mean
  Seconds busy;    // of it computing
  ByteCount peak;  // on the device
};

// In steady state. Tier 0 of the graph is the device, tier 1 the host. O(count x resident x batch) to
// script, then the engine.
PartitionRound partition_round(const Partitions& partitions, const TierGraph& graph,
                               const TierPolicy& policy);

}  // namespace orrery::sim
