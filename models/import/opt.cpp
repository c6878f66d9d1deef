// SPDX-License-Identifier: Apache-2.0
// OPT: GPT with ReLU; the table of positions has two rows more than positions.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"opt"};
constexpr std::int64_t kPositionOffset = 2;

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  expect_flag(config, "do_layer_norm_before", true);
  expect_flag(config, "_remove_final_layer_norm", false);
  expect_flag(config, "layer_norm_elementwise_affine", true);
  NetworkSpec spec = read_sizes(config, Family::Gpt);
  expect_integer(config, "word_embed_proj_dim", spec.hidden);
  spec.max_positions += kPositionOffset;
  spec.ffn_hidden = config.required("ffn_dim").integer(1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "activation_function", Activation::Relu);
  spec.hidden_dropout = read_dropout(config, "dropout", 0.1);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0.0);
  set_biases(spec, config.boolean_or("enable_bias", true));
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_opt{"opt", kTypes, read};

}  // namespace orrery::models
