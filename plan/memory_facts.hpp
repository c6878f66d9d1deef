// SPDX-License-Identifier: Apache-2.0
// How a framework uses the allocator, beside what the plan's Execution says. Defaults are those of
// Megatron-LM; each value comes from the framework's source (docs/fidelity.md).
#pragma once

#include <cstdint>

#include "base/units.hpp"

namespace orrery::plan {

// What becomes of the gradient of a GEMM weight.
enum class WeightGradient : std::uint8_t {
  Fused,      // the GEMM adds to the main gradient; a placeholder of the weight's size lives shortly
  Cached,     // the same with one placeholder a weight shape, kept for ever (Transformer Engine)
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

struct MemoryFacts {
  WeightGradient weight_gradient = WeightGradient::Fused;
  OptimizerStep step = OptimizerStep::Fused;
  bool expandable_segments = false;
  bool keeps_stage_outputs = false;   // until the backward; else freed once sent
  bool keeps_low_gradients = false;   // 16-bit gradients beside the fp32 ones (BF16_Optimizer)
  bool copies_into_buffer = true;     // parameters move into one flat buffer
  bool ends_form_root = false;        // FSDP: embedding and head are one unit, gathered throughout
  bool gathers_into_copy = false;     // FSDP2: parameters are copied out of the gathered buffer
  bool frees_sharded_gradients = false;  // each step allocates them anew
  std::int64_t bucket_elements = 0;   // ZeRO-1/2 reduction bucket
};

}  // namespace orrery::plan
