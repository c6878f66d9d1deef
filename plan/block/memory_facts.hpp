// SPDX-License-Identifier: Apache-2.0
// How a framework uses the allocator, beside what the plan's Execution says. Defaults are those of
// Megatron-LM; each value comes from the framework's source (docs/fidelity.md).
#pragma once

#include <cstdint>

#include "base/units.hpp"

namespace orrery::plan {

// What becomes of the gradient of a GEMM weight.
enum class WeightGradient : std::uint8_t {
  Fused,   // the GEMM adds to the main gradient; a placeholder of the weight's size lives shortly
  Cached,  // the same with one placeholder a weight shape, kept for ever (Transformer Engine)
  Temporary,  // computed in the parameters' precision, added to the main gradient, freed
  Kept,       // in the parameters' precision, from the first micro-batch to the end of the step
};

// The optimizer's step, in bytes of a parameter that this device updates.
enum class OptimizerStep : std::uint8_t {
  Fused,         // nothing beside the moments
  HalfToFloat,   // fp32 copies of 16-bit gradients
  FlatThenAdam,  // norm on fp32 copies; 16-bit then fp32 flat gradients; Adam with two temporaries
  FloatAndAdam,  // norm on fp32 copies; fp32 gradients; Adam with two temporaries
  Foreach,       // square root of the second moment of all parameters
};

// What the loss holds per logit beside the 16-bit logits (plan::Execution::eager_loss apart).
enum class LossMemory : std::uint8_t {
  InPlace,   // fp32 softmax, differentiated in place (Megatron-LM's vocabulary-parallel loss)
  InLogits,  // the gradient takes the place of the logits (Transformer Engine's kernel)
  Eager,     // PyTorch's log_softmax and nll_loss on an fp32 copy
  Sharded,   // the same over DTensors (torch.distributed.tensor.parallel.loss_parallel)
};

struct MemoryFacts {
  LossMemory loss = LossMemory::InPlace;
  WeightGradient weight_gradient = WeightGradient::Fused;
  OptimizerStep step = OptimizerStep::Fused;
  bool expandable_segments = false;
  bool keeps_stage_outputs = false;  // until the backward; else freed once sent
  // PyTorch's pipelines: what the last stage returns of every micro-batch, its logits, stays until
  // the next step begins (torch/distributed/pipelining/stage.py, output_chunks).
  bool keeps_last_outputs = false;
  bool keeps_low_gradients = false;  // 16-bit gradients beside the fp32 ones (BF16_Optimizer)
  bool copies_into_buffer = true;    // parameters move into one flat buffer
  bool ends_form_root = false;       // FSDP: embedding and head are one unit, gathered throughout
  bool gathers_into_copy = false;    // FSDP2: parameters are copied out of the gathered buffer
  bool frees_sharded_gradients = false;  // each step allocates them anew
  bool whole_at_start = false;           // the model is built whole before it is sharded
  // ZeRO-1: the flat buffer of all parameters is cut into one run a rank, so that a rank updates
  // few parameters and those whole; else it updates its part of each of them.
  bool contiguous_shards = true;
  bool gather_buffer = true;     // the output layer gathers its input into a buffer that stays
  bool exchange_stream = false;  // exchanged heads land in memory of a stream of their own
  bool joined_outputs = true;    // gate and up are one tensor
  // Queries, keys and values are views of one tensor; values are copied for attention. The tensor
  // and what is exchanged for heads stay to the end of the layer of attention.
  bool attention_variables = true;
  // The backward of a product whose input gradient is scattered holds the whole of it to its end.
  bool whole_gradients_stay = true;
  // The output layer shares placeholders, too (WeightGradient::Cached).
  bool output_placeholder = true;
  // Tokens are sorted into buffers of their own behind the exchange between ranks and before the
  // one back; what was permuted, received and sent back stays to the end of the layer of experts.
  bool routed_variables = true;
  // A schedule holds the gradient that it received until the next one is there, and the one that it
  // sent until the next one is made.
  bool held_gradients = true;
  int product_workspaces = 1;        // of cuBLAS: PyTorch's and others'
  std::int64_t bucket_elements = 0;  // ZeRO-1/2 reduction bucket
};

}  // namespace orrery::plan
