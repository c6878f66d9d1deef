// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/framework_memory.hpp"

namespace orrery::studies {

plan::MemoryFacts intern_evo_memory() {
  plan::MemoryFacts memory;
  memory.contiguous_shards = false;
  memory.gather_buffer = false;
  memory.weight_gradient = plan::WeightGradient::Kept;
  memory.step = plan::OptimizerStep::FlatThenAdam;
  memory.bucket_elements = std::int64_t{512} << 20;
  memory.whole_gradients_stay = false;
  memory.routed_variables = false;
  memory.held_gradients = false;
  memory.joined_outputs = false;  // w1 and w2 (model/linear.py)
  memory.attention_variables = false;
  return memory;
}

// torchtitan: expandable segments in its launch script; fully_shard per layer, embedding and output
// in the root; torch.optim.AdamW(foreach=True).
plan::MemoryFacts torchtitan_memory() {
  plan::MemoryFacts memory;
  memory.contiguous_shards = false;
  memory.gather_buffer = false;
  memory.weight_gradient = plan::WeightGradient::Kept;
  memory.step = plan::OptimizerStep::Foreach;
  memory.expandable_segments = true;
  memory.copies_into_buffer = false;
  memory.keeps_last_outputs = true;
  memory.ends_form_root = true;
  memory.gathers_into_copy = true;
  memory.frees_sharded_gradients = true;
  memory.loss = plan::LossMemory::Sharded;
  memory.whole_gradients_stay = false;
  memory.routed_variables = false;
  memory.held_gradients = false;
  memory.attention_variables = false;
  return memory;
}

// microsoft/DeepSpeed runtime/pipe (buffers hold the outputs of a stage until their backward) with
// stage_1_and_2.py (fp16: flat 16-bit then fp32 gradients in the step; buckets of 5e8 elements).
plan::MemoryFacts deepspeed_memory() {
  plan::MemoryFacts memory;
  memory.contiguous_shards = false;
  memory.weight_gradient = plan::WeightGradient::Temporary;
  memory.step = plan::OptimizerStep::HalfToFloat;
  memory.keeps_stage_outputs = true;
  memory.bucket_elements = 500'000'000;
  memory.routed_variables = false;
  memory.held_gradients = false;
  memory.attention_variables = false;
  return memory;
}

// huggingface/nanotron: shards of every parameter (optim/zero.py), inputs of products gathered into
// a buffer that stays (parallel/utils.py, MemoryBuffer), outputs of a stage held to its backward
// (pipeline_parallel/state.py). That 16-bit gradients of all layers stay to the end of a backward
// (optim/gradient_accumulator.py), while its activations go, is left out.
plan::MemoryFacts nanotron_memory() {
  plan::MemoryFacts memory;
  memory.contiguous_shards = false;
  memory.weight_gradient = plan::WeightGradient::Temporary;
  memory.keeps_stage_outputs = true;
  memory.copies_into_buffer = false;
  memory.routed_variables = false;
  memory.held_gradients = false;
  memory.attention_variables = false;
  return memory;
}

}  // namespace orrery::studies
