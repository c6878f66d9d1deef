// SPDX-License-Identifier: Apache-2.0
// Nemotron: layer norms, squared ReLU without a gate, rotary positions.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"nemotron"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_sizes(config, Family::Gpt);
  set_position(spec, PositionKind::Rotary);
  spec.kv_heads = config.integer_or("num_key_value_heads", spec.heads, 1, limits::kMaxHeads);
  spec.head_dim = config.integer_or("head_dim", spec.head_dim, 1, limits::kMaxHidden);
  spec.ffn_hidden = config.required("intermediate_size").integer(1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "hidden_act", Activation::SquaredRelu);
  spec.attention_bias = config.boolean_or("attention_bias", false);
  spec.attention_output_bias = spec.attention_bias;
  spec.mlp_bias = config.boolean_or("mlp_bias", false);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0.0);
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_nemotron{"nemotron", kTypes, read};

}  // namespace orrery::models
