// SPDX-License-Identifier: Apache-2.0
// BERT, trained on masked positions: 15 % of them, as its authors do.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"bert"};
constexpr double kMaskedFraction = 0.15;

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  expect_flag(config, "is_decoder", false);
  expect_flag(config, "add_cross_attention", false);
  expect_integer(config, "type_vocab_size", 2);
  if (config.string_or("position_embedding_type", "absolute") != "absolute") {
    config.required("position_embedding_type").fail("only absolute positions are modelled");
  }
  NetworkSpec spec = read_sizes(config, Family::Bert);
  spec.ffn_hidden = config.required("intermediate_size").integer(1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "hidden_act", Activation::Gelu);
  spec.hidden_dropout = read_dropout(config, "hidden_dropout_prob", 0.1);
  spec.attention_dropout = read_dropout(config, "attention_probs_dropout_prob", 0.1);
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  spec.masked_fraction = kMaskedFraction;
  return spec;
}

}  // namespace

extern const ConfigImporter importer_bert{"bert", kTypes, read};

}  // namespace orrery::models
