// SPDX-License-Identifier: Apache-2.0
// MPT: GPT without biases, mostly with ALiBi. Its norms have no bias either, which counts here.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"mpt"};

void read_attention(ObjectReader& config, NetworkSpec& spec) {
  const auto value = config.optional("attn_config");
  if (!value) {
    return;
  }
  ObjectReader attention = value->object();
  if (attention.boolean_or("alibi", false)) {
    set_position(spec, PositionKind::Alibi);
  }
  const bool one =
      attention.string_or("attn_type", "multihead_attention") == "multiquery_attention";
  spec.kv_heads = attention.integer_or("kv_n_heads", one ? 1 : spec.heads, 1, limits::kMaxHeads);
  spec.qk_norm = attention.boolean_or("qk_ln", false);
  spec.attention_dropout = read_dropout(attention, "attn_pdrop", 0.0);
  attention.ignore_rest();
}

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_sizes(
      config, Family::Gpt,
      {.layers = "n_layers", .hidden = "d_model", .heads = "n_heads", .positions = "max_seq_len"});
  spec.ffn_hidden = config.integer_or("expansion_ratio", 4, 1, 64) * spec.hidden;
  set_biases(spec, !config.boolean_or("no_bias", true));
  spec.hidden_dropout = read_dropout(config, "resid_pdrop", 0.0);
  read_attention(config, spec);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_mpt{"mpt", kTypes, read};

}  // namespace orrery::models
