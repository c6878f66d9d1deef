// SPDX-License-Identifier: Apache-2.0
// Phi 1 and 2: attention and MLP in parallel behind one layer norm, biases everywhere. Phi 3 and 4:
// LLaMA with dropout of the branches.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 2> kTypes = {"phi", "phi3"};

NetworkSpec read_phi(ObjectReader& config) {
  NetworkSpec spec = read_sizes(config, Family::Gpt);
  set_position(spec, PositionKind::Rotary);
  spec.kv_heads = config.integer_or("num_key_value_heads", spec.heads, 1, limits::kMaxHeads);
  spec.ffn_hidden = config.required("intermediate_size").integer(1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "hidden_act", Activation::Gelu);
  spec.hidden_dropout = read_dropout(config, "resid_pdrop", 0.0);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0.0);
  spec.qk_norm = config.boolean_or("qk_layernorm", false);
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  spec.head_bias = true;
  spec.parallel_block = true;
  return spec;
}

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(config, {});
  if (model_type == "phi") {
    return read_phi(config);
  }
  NetworkSpec spec = read_llama_like(config);
  spec.hidden_dropout = read_dropout(config, "resid_pdrop", 0.0);
  read_sliding_window(config, spec, /*window_if_absent=*/0, /*interval=*/0);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_phi{"phi", kTypes, read};

}  // namespace orrery::models
