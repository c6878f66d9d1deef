// SPDX-License-Identifier: Apache-2.0
// Peak bytes of every pipeline device from the costs of its virtual stages.
#pragma once

#include <vector>

#include "plan/live_counts.hpp"
#include "plan/simulate.hpp"
#include "plan/sliced_stage.hpp"
#include "plan/split_backward.hpp"
#include "plan/stage.hpp"

namespace orrery::plan {

// `kept` per virtual stage where an order splits backwards; `versions` of the parameters per
// virtual stage, empty for one of each.
std::vector<StageMemory> stage_memory(const Plan& plan, const std::vector<StageCost>& stages,
                                      const std::vector<LiveCounts>& live,
                                      const std::vector<SplitBackwards::Kept>& kept = {},
                                      const std::vector<int>& versions = {},
                                      const std::vector<SlicePeak>& slice_peaks = {});

// CUDA context and framework state outside the allocator, and the buffers of NCCL's communicators:
// one for each group of tp, cp, ep, dp and pp; channels inside a node by its links, between nodes
// by its adapters.
ByteCount context_bytes();
ByteCount communicator_bytes(const Plan& plan);

// What the tensors of its devices take on the fullest node beside them.
struct NodeMemory {
  ByteCount host;
  ByteCount disk;
};
NodeMemory node_memory(const Plan& plan, const std::vector<StageMemory>& memory);

// Against the memory of the GPU less the reserve, then against host memory and disk of a node.
MemoryVerdict memory_verdict(const Plan& plan, const std::vector<StageMemory>& memory);

}  // namespace orrery::plan
