// SPDX-License-Identifier: Apache-2.0
// T5: encoder and decoder with relative position biases; version 1.1 with a gated GeLU.
#include <algorithm>
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"
#include "models/spec_fields.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 2> kTypes = {"t5", "mt5"};
// Tokens of a pre-training text and of the spans that its decoder writes (google-research/t5x).
constexpr std::int64_t kTrainingLength = 512;
constexpr std::int64_t kTargetLength = 114;

Activation read_feed_forward(ObjectReader& config) {
  const std::string name = config.string_or("feed_forward_proj", "relu");
  if (name == "relu") {
    return Activation::Relu;
  }
  if (name == "gated-gelu") {
    return Activation::GeGlu;
  }
  config.required("feed_forward_proj")
      .fail("this feed_forward_proj is not modelled", "relu or gated-gelu");
}

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(config, {});
  expect_flag(config, "is_encoder_decoder", true);
  expect_integer(config, "relative_attention_num_buckets", 32);
  NetworkSpec core;
  core.family = Family::T5;
  core.encoder_layers = config.required("num_layers").integer(1, limits::kMaxLayers);
  core.layers = config.integer_or("num_decoder_layers", core.encoder_layers, 1, limits::kMaxLayers);
  core.hidden = config.required("d_model").integer(1, limits::kMaxHidden);
  core.heads = config.required("num_heads").integer(1, limits::kMaxHeads);
  core.sequence = config.integer_or("n_positions", kTrainingLength, 1, limits::kMaxSequence);
  core.attention_bias = default_attention_bias(Family::T5);
  NetworkSpec spec = with_defaults(core);
  spec.encoder_layers = core.encoder_layers;
  spec.decoder_sequence =
      std::max<std::int64_t>(1, core.sequence * kTargetLength / kTrainingLength);
  spec.head_dim = config.integer_or("d_kv", 64, 1, limits::kMaxHidden);
  spec.ffn_hidden = config.required("d_ff").integer(1, limits::kMaxFfn);
  spec.vocab = config.required("vocab_size").integer(1, limits::kMaxVocab);
  spec.activation = model_type == "mt5" && !config.has("feed_forward_proj")
                        ? Activation::GeGlu
                        : read_feed_forward(config);
  spec.hidden_dropout = read_dropout(config, "dropout_rate", 0.1);
  spec.attention_dropout = spec.hidden_dropout;
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", model_type == "t5");
  return spec;
}

}  // namespace

extern const ConfigImporter importer_t5{"t5", kTypes, read};

}  // namespace orrery::models
