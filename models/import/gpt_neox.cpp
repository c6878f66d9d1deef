// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX: attention and MLP in parallel, each with its own norm of the same stream.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"gpt_neox"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_sizes(config, Family::Gpt);
  set_position(spec, PositionKind::Rotary);
  spec.ffn_hidden = config.required("intermediate_size").integer(1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "hidden_act", Activation::Gelu);
  spec.hidden_dropout = read_dropout(config, "hidden_dropout", 0.0);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0.0);
  spec.attention_bias = config.boolean_or("attention_bias", true);
  spec.attention_output_bias = spec.attention_bias;
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  spec.parallel_block = config.boolean_or("use_parallel_residual", true);
  spec.parallel_mlp_norm = spec.parallel_block;
  return spec;
}

}  // namespace

extern const ConfigImporter importer_gpt_neox{"gpt-neox", kTypes, read};

}  // namespace orrery::models
