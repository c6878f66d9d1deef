// SPDX-License-Identifier: Apache-2.0
// DBRX: gated experts in every layer, layer norms without biases (which count here).
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"dbrx"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  NetworkSpec spec = read_sizes(
      config, Family::Llama,
      {.layers = "n_layers", .hidden = "d_model", .heads = "n_heads", .positions = "max_seq_len"});
  spec.norm = NormKind::LayerNorm;
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  ObjectReader attention = config.required("attn_config").object();
  spec.kv_heads = attention.integer_or("kv_n_heads", 1, 1, limits::kMaxHeads);
  spec.attention_dropout = read_dropout(attention, "attn_pdrop", 0.0);
  attention.ignore_rest();
  ObjectReader experts = config.required("ffn_config").object();
  spec.moe = read_experts(
      experts, {.experts = "moe_num_experts", .top_k = "moe_top_k", .width = "ffn_hidden_size"});
  spec.ffn_hidden = spec.moe.ffn_hidden;
  experts.ignore_rest();
  return spec;
}

}  // namespace

extern const ConfigImporter importer_dbrx{"dbrx", kTypes, read};

}  // namespace orrery::models
