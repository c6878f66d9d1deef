// SPDX-License-Identifier: Apache-2.0
// The allocations and releases of one block on one device, in the order in which a framework that
// runs operator by operator makes them: outputs, saved tensors, gathered inputs, gradients,
// temporaries of the loss. What is still live after the forward is what saved_activations() counts
// (plan/block/cost.hpp), to the byte in the layouts of tests/unit/plan/block_memory_test.cpp; where
// experts have a degree of their own or operators are recomputed some buffers differ. Gradients
// pass through additions without a copy; two of one tensor are added in place, as torch.autograd
// does. O(operators).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/block/carried.hpp"
#include "plan/block/memory_facts.hpp"
#include "plan/block/steps.hpp"

namespace orrery::plan {

struct MemoryEvent {
  // Numbered within the block; below 0 for one of this size that the first block to ask for it
  // leaves to all others, for ever.
  static constexpr std::int32_t kPlaceholder = -1;   // of a weight's gradient
  static constexpr std::int32_t kGatherBuffer = -2;  // of an input
  std::int32_t buffer = 0;
  std::int64_t bytes = 0;  // 0 releases the buffer
  int stream = 0;          // whose memory it is in
};

struct BlockMemory {
  std::vector<MemoryEvent> forward;
  std::vector<MemoryEvent> backward;  // with the recomputed forward
  std::int32_t num_buffers = 0;
  // Of every buffer: the group of the operator that makes the tensor or keeps it for itself. What
  // the block was handed counts as residuals.
  std::vector<OperatorGroup> groups;
  std::vector<std::int32_t> context;  // of a slice: its keys and values, -1 where dropped
  // Buffers shared with the neighbours, -1 where there is none. The input is released here unless
  // nothing of it was saved and the forward has released it; the output is left to the next block.
  std::int32_t input = -1;
  std::int32_t output = -1;
  std::int32_t logits = -1;  // where they outlive the micro-batch, who runs the step frees them
  std::int32_t output_gradient = -1;
  std::int32_t input_gradient = -1;            // may be the same buffer as output_gradient
  std::vector<std::int32_t> weight_gradients;  // live after the backward
  // What the weight gradients of a cut backward read, so that it stays to their pass: inputs and
  // output gradients of the products.
  std::vector<std::int32_t> for_weight_grads;
  // Elements of each operator's trained weights together, of experts one by one; of its frozen
  // ones.
  std::vector<std::int64_t> weights;
  std::vector<std::int64_t> experts;
  std::vector<std::int64_t> frozen;
  std::int64_t boundary = 0;  // bytes of the residual stream
  Carried carried;            // beside it: the stage's, neither the block's to allocate nor to free
};

// `gathered`: parameters of the block are put together and its gradients taken apart again (ZeRO-2
// and 3), so that weight gradients live until the block's backward has ended. `casts`: products in
// fp8 cast their weights for themselves (casts_in_passes()).
BlockMemory block_memory(const BlockContext& context, const MemoryFacts& facts, bool gathered,
                         bool casts = false);

}  // namespace orrery::plan
