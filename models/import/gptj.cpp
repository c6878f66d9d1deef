// SPDX-License-Identifier: Apache-2.0
// GPT-J and CodeGen: attention without biases and MLP in parallel behind one norm.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 2> kTypes = {"gptj", "codegen"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_sizes(
      config, Family::Gpt,
      {.layers = "n_layer", .hidden = "n_embd", .heads = "n_head", .positions = "n_positions"});
  set_position(spec, PositionKind::Rotary);
  spec.ffn_hidden = config.integer_or("n_inner", 4 * spec.hidden, 1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "activation_function", Activation::Gelu);
  spec.attention_bias = false;
  spec.attention_output_bias = false;
  spec.hidden_dropout = read_dropout(config, "resid_pdrop", 0.0);
  spec.attention_dropout = read_dropout(config, "attn_pdrop", 0.0);
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  spec.head_bias = true;
  spec.parallel_block = true;
  return spec;
}

}  // namespace

extern const ConfigImporter importer_gptj{"gptj", kTypes, read};

}  // namespace orrery::models
