// SPDX-License-Identifier: Apache-2.0
// Peak memory of every pipeline device by replaying two iterations and optimizer steps through the
// caching allocator: states, then the passes of the schedule in their order, each block as the
// sequence of allocations of block/memory.hpp, moments allocated in the first step. So allocated
// and reserved peaks both come out, rounding and fragmentation included. Far dearer than
// stage_memory(), some milliseconds a device: for plans that are reported, or would be.
// O(micro-batches x blocks x operators) per device; micro-batches beyond the steady state of the
// pipeline repeat and are left out.
#pragma once

#include <vector>

#include "base/units.hpp"
#include "plan/block/memory_facts.hpp"
#include "plan/plan.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::plan {

struct MemoryPeak {
  ByteCount allocated;                                     // torch.cuda.max_memory_allocated
  ByteCount reserved;                                      // torch.cuda.max_memory_reserved
  ByteCount outside;                                       // CUDA context and NCCL buffers
  ByteCount device() const { return reserved + outside; }  // what nvidia-smi shows
};

// One for each pipeline device, on `jobs` threads (0: all cores); nothing where even the steady
// state has more than a million passes.
std::vector<MemoryPeak> replay_memory(const Plan& plan, const MemoryFacts& facts = {},
                                      int jobs = 1);

// Whether replayed_verdict() of these peaks fits; stops where it does not.
bool replay_fits(const Plan& plan, int jobs = 1);

// Against the memory of the GPU less the reserve. Plans may fit by categories and not here: what
// the allocator cannot reuse comes on top.
MemoryVerdict replayed_verdict(const Plan& plan, const std::vector<MemoryPeak>& peaks);

}  // namespace orrery::plan
