// SPDX-License-Identifier: Apache-2.0
// Falcon: attention and MLP in parallel, on one norm or on two, keys and values shared by all heads
// or by groups.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"falcon"};

std::int64_t read_kv_heads(ObjectReader& config, std::int64_t heads, bool grouped) {
  const bool one = !grouped && config.boolean_or("multi_query", true);
  return one ? 1 : config.integer_or("num_kv_heads", heads, 1, limits::kMaxHeads);
}

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_sizes(config, Family::Gpt, {.positions_if_absent = 2048});
  const bool grouped = config.boolean_or("new_decoder_architecture", false);
  const bool alibi = config.boolean_or("alibi", false);
  set_position(spec, alibi ? PositionKind::Alibi : PositionKind::Rotary);
  spec.kv_heads = read_kv_heads(config, spec.heads, grouped);
  spec.ffn_hidden = config.integer_or("ffn_hidden_size", 4 * spec.hidden, 1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "activation", Activation::Gelu);
  set_biases(spec, config.boolean_or("bias", false));
  spec.hidden_dropout = read_dropout(config, "hidden_dropout", 0.0);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0.0);
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  spec.parallel_block = grouped || config.boolean_or("parallel_attn", true);
  spec.parallel_mlp_norm = grouped && config.integer_or("num_ln_in_parallel_attn", 2, 1, 2) == 2;
  return spec;
}

}  // namespace

extern const ConfigImporter importer_falcon{"falcon", kTypes, read};

}  // namespace orrery::models
