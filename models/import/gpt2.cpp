// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"gpt2"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  expect_flag(config, "add_cross_attention", false);
  NetworkSpec spec = read_sizes(
      config, Family::Gpt,
      {.layers = "n_layer", .hidden = "n_embd", .heads = "n_head", .positions = "n_positions"});
  spec.ffn_hidden = config.integer_or("n_inner", 4 * spec.hidden, 1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "activation_function", Activation::Gelu);
  spec.hidden_dropout = read_dropout(config, "resid_pdrop", 0.1);
  spec.attention_dropout = read_dropout(config, "attn_pdrop", 0.1);
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_gpt2{"gpt2", kTypes, read};

}  // namespace orrery::models
