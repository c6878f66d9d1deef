// SPDX-License-Identifier: Apache-2.0
// Parameters of serving plans that live on the host or on disk (`offload.parameters` of their
// blocks): a window of them passes through the device, iteration after iteration in the same order
// (TPI-LLM's sliding window, arXiv 2410.00531, section 3.3; Superpipeline's k and k', arXiv
// 2410.08791). `gathers_in_flight` blocks are on the device at once, `fetched_together` of them are
// exchanged at once; blocks that stay are beside them. The same program of tiers as in training
// (sim/engine/tiers.hpp).
#pragma once

#include <vector>

#include "plan/plan.hpp"
#include "sim/engine/tiers.hpp"

namespace orrery::plan {

// A block of a stage in order: what it holds, where, and its time in an iteration.
struct ServedWeights {
  Tier home = Tier::Device;
  ByteCount bytes;
  Seconds compute;
};

// Bytes of one device of the stage.
struct WeightsHeld {
  ByteCount device;  // blocks that stay, and the largest window of the others
  ByteCount host;
  ByteCount disk;
};
WeightsHeld weights_held(const std::vector<ServedWeights>& blocks, int window);

// What a window that never holds all of them brings in every iteration, from host and disk.
WeightsHeld weights_fetched(const std::vector<ServedWeights>& blocks, int window);

// An iteration among many alike, each of which loads what comes next while blocks before it
// compute.
Seconds fetched_iteration(const std::vector<ServedWeights>& blocks, const Execution& execution,
                          const sim::TierGraph& tiers);

}  // namespace orrery::plan
