// SPDX-License-Identifier: Apache-2.0
// StarCoder: GPT-2 whose heads share keys and values; StarCoder 2: rotary positions, groups of
// heads and a sliding window.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 2> kTypes = {"gpt_bigcode", "starcoder2"};

NetworkSpec read_first(ObjectReader& config) {
  NetworkSpec spec = read_sizes(
      config, Family::Gpt,
      {.layers = "n_layer", .hidden = "n_embd", .heads = "n_head", .positions = "n_positions"});
  spec.kv_heads = config.boolean_or("multi_query", true) ? 1 : spec.heads;
  spec.ffn_hidden = config.integer_or("n_inner", 4 * spec.hidden, 1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "activation_function", Activation::Gelu);
  spec.hidden_dropout = read_dropout(config, "resid_pdrop", 0.1);
  spec.attention_dropout = read_dropout(config, "attn_pdrop", 0.1);
  return spec;
}

NetworkSpec read_second(ObjectReader& config) {
  NetworkSpec spec = read_sizes(config, Family::Gpt);
  set_position(spec, PositionKind::Rotary);
  spec.kv_heads = config.integer_or("num_key_value_heads", 2, 1, limits::kMaxHeads);
  spec.ffn_hidden = config.required("intermediate_size").integer(1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "hidden_act", Activation::Gelu);
  set_biases(spec, config.boolean_or("use_bias", true));
  spec.hidden_dropout = read_dropout(config, "residual_dropout", 0.0);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0.0);
  read_sliding_window(config, spec, /*window_if_absent=*/0, /*interval=*/0);
  return spec;
}

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = model_type == "gpt_bigcode" ? read_first(config) : read_second(config);
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_starcoder{"starcoder", kTypes, read};

}  // namespace orrery::models
