// SPDX-License-Identifier: Apache-2.0
// Peak memory of every pipeline device by replaying two iterations and optimizer steps through the
// caching allocator: states, then the passes of the schedule in their order, each block as the
// sequence of allocations of block_memory.hpp, moments allocated in the first step. So allocated
// and reserved peaks both come out, rounding and fragmentation included. Far dearer than
// stage_memory(): for plans that are reported, never inside the search.
// O(micro-batches x blocks x operators) per device; micro-batches beyond the steady state of the
// pipeline repeat and are left out.
#pragma once

#include <vector>

#include "base/units.hpp"
#include "plan/memory_facts.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

struct MemoryPeak {
  ByteCount allocated;  // torch.cuda.max_memory_allocated
  ByteCount reserved;   // torch.cuda.max_memory_reserved
  ByteCount outside;    // CUDA context and NCCL buffers
  ByteCount device() const { return reserved + outside; }  // what nvidia-smi shows
};

std::vector<MemoryPeak> replay_memory(const Plan& plan, const MemoryFacts& facts = {});

// Bytes outside the allocator: context and buffers of the communicators.
ByteCount outside_allocator(const Plan& plan);

}  // namespace orrery::plan
