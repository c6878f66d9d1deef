// SPDX-License-Identifier: Apache-2.0
// ViT classifier: one token a patch and a class token; the classes are those of id2label.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"
#include "models/spec_fields.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"vit"};
constexpr std::int64_t kImageNetClasses = 1000;
constexpr std::int64_t kMaxPixels = 1 << 16;  // side of an image

std::int64_t read_classes(ObjectReader& config) {
  if (const auto labels = config.optional("id2label")) {
    ObjectReader names = labels->object();
    const auto count = static_cast<std::int64_t>(names.keys().size());
    names.ignore_rest();
    return count;
  }
  return config.integer_or("num_labels", kImageNetClasses, 1, limits::kMaxVocab);
}

void read_image(ObjectReader& config, NetworkSpec& spec) {
  const std::int64_t side = config.required("image_size").integer(1, kMaxPixels);
  spec.image_patch = config.required("patch_size").integer(1, 4096);
  if (side % spec.image_patch != 0) {
    config.required("patch_size").fail("image_size is not a multiple of patch_size");
  }
  const std::int64_t patches = side / spec.image_patch;
  spec.sequence = patches * patches + 1;
}

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  expect_integer(config, "num_channels", 3);
  NetworkSpec core;
  core.family = Family::Vit;
  core.layers = config.required("num_hidden_layers").integer(1, limits::kMaxLayers);
  core.hidden = config.required("hidden_size").integer(1, limits::kMaxHidden);
  core.heads = config.required("num_attention_heads").integer(1, limits::kMaxHeads);
  core.attention_bias = config.boolean_or("qkv_bias", true);
  NetworkSpec spec = with_defaults(core);
  spec.attention_output_bias = true;
  spec.ffn_hidden = config.required("intermediate_size").integer(1, limits::kMaxFfn);
  spec.activation = read_plain_activation(config, "hidden_act", Activation::Gelu);
  spec.hidden_dropout = read_dropout(config, "hidden_dropout_prob", 0.0);
  spec.attention_dropout = read_dropout(config, "attention_probs_dropout_prob", 0.0);
  read_image(config, spec);
  spec.classes = read_classes(config);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_vit{"vit", kTypes, read};

}  // namespace orrery::models
