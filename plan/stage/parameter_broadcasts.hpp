// SPDX-License-Identifier: Apache-2.0
// Parameters that come back from sharded states by broadcasts instead of a gather
// (Execution::broadcasts_parameters). Whole tensors belong to ranks, and every rank that has some
// broadcasts them, one rank after the other (InternLM/InternEvo, hybrid_zero_optim.py:
// _partition_param_list, broadcast_params). Rings run through a node's GPUs from the last to the
// first (NVIDIA/nccl issue 514: 0 7 6 5 4 3 2 1 8 15 ...; nodes of several NICs have one for each,
// which enters at another GPU), so in some channel the next root of the same node is the rank that
// a broadcast reaches last, and it goes round the ring before the next begins. A root of the next
// node gets it after one node. The bytes take what they take in a gather, whose own round is one of
// those. Deterministic; O(blocks).
#pragma once

#include "plan/stage/stage.hpp"

namespace orrery::plan {

// What the broadcasts of a device's stages take beyond one gather of the same bytes.
Seconds broadcast_rounds(const Plan& plan, const std::vector<StageContent>& stages,
                         const BlockCosts& costs);

}  // namespace orrery::plan
