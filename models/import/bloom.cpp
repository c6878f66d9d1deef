// SPDX-License-Identifier: Apache-2.0
// BLOOM: GPT with ALiBi and a norm behind the embedding. Its files say the same by several names.
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"bloom"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_sizes(config, Family::Gpt,
                                {.layers = present(config, {"n_layer", "num_hidden_layers"}),
                                 .hidden = present(config, {"hidden_size", "n_embed"}),
                                 .heads = present(config, {"n_head", "num_attention_heads"}),
                                 .positions = "seq_length",
                                 .positions_if_absent = 2048});
  set_position(spec, PositionKind::Alibi);
  spec.embedding_norm = true;
  spec.hidden_dropout = read_dropout(config, "hidden_dropout", 0.0);
  spec.attention_dropout = read_dropout(config, "attention_dropout", 0.0);
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_bloom{"bloom", kTypes, read};

}  // namespace orrery::models
