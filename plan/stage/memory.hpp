// SPDX-License-Identifier: Apache-2.0
// Bytes on the devices of a stage by category, beside them on their nodes, and whether they fit.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::plan {

// Bytes on one device of a stage, by category; `total` sums all of them.
struct StageMemory {
  ByteCount parameters;
  ByteCount gradients;
  ByteCount optimizer;
  ByteCount activations;    // saved by the layers
  ByteCount ends;           // saved by embedding and head: dropout masks, final norm, logits
  ByteCount workspace;      // the layer being recomputed, gathered parameters
  ByteCount communication;  // NCCL buffers and bucket buffers
  ByteCount context;        // CUDA context and allocator rounding
  ByteCount host;           // of this device's tensors on the host and on disk, beside the total
  ByteCount disk;
  std::string peak_owner;  // what the peak is made of, in words
  ByteCount total() const { return allocated() + communication + context; }
  // What a framework's allocator counts (torch max_memory_allocated): without the context and
  // buffers allocated outside it.
  ByteCount allocated() const {
    return parameters + gradients + optimizer + activations + ends + workspace;
  }
};

// Whether every device holds its stage, and what misses if not.
struct MemoryVerdict {
  bool fits = true;
  ByteCount excess;  // of the worst stage
  std::string text;
};

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
