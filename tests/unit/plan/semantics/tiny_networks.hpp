// SPDX-License-Identifier: Apache-2.0
// Networks small enough to run operator by operator.
#pragma once

#include "models/network.hpp"

namespace orrery::plan::semantics {

// Of a Llama with all that distinguishes its layers.
inline models::NetworkSpec tiny(models::Family family = models::Family::Gpt) {
  models::NetworkSpec spec;
  spec.name = "tiny";
  spec.family = family;
  spec.layers = 2;
  spec.hidden = 8;
  spec.heads = 4;
  spec.kv_heads = 4;
  spec.head_dim = 2;
  spec.ffn_hidden = 8;
  spec.vocab = 8;
  spec.sequence = 4;
  if (family == models::Family::Llama) {
    spec.norm = models::NormKind::RmsNorm;
    spec.activation = models::Activation::SwiGlu;
    spec.position = models::PositionKind::Rotary;
    spec.tied_embeddings = false;
    spec.attention_bias = false;
    spec.attention_output_bias = false;
    spec.mlp_bias = false;
  }
  return spec;
}

}  // namespace orrery::plan::semantics
