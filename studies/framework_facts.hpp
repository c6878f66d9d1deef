// SPDX-License-Identifier: Apache-2.0
// What a training framework does when a measurement does not say otherwise: one table, one row a
// framework, from its documentation and source, never from measured times.
#pragma once

#include <string_view>

#include "plan/memory_facts.hpp"
#include "plan/plan.hpp"

namespace orrery::studies {

struct FrameworkFacts {
  std::string_view name;        // found in the `framework` column, any case
  bool pads_vocab = false;      // to a multiple of 128 x tp (Megatron's tokenizer padding)
  bool gpt_dropout = false;     // GPT scripts keep the default dropout of 0.1
  bool fp16_gradients = false;  // with fp16, gradients stay in fp16 (fp32 with bf16)
  plan::Execution execution;
  plan::MemoryFacts memory = {};
};

// The first row whose name the text mentions; null when none does.
const FrameworkFacts* find_framework(std::string_view framework);

}  // namespace orrery::studies
