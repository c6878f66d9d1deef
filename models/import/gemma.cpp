// SPDX-License-Identifier: Apache-2.0
// Gemma 1 to 3 (text): gated GeLU, tied embeddings; from Gemma 2 on norms on both sides of each
// part and windows in all but every second (sixth) layer; Gemma 3 normalises q and k.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 3> kTypes = {"gemma", "gemma2", "gemma3_text"};

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(config, {});
  const std::int64_t kv_heads = model_type == "gemma" ? 16 : 4;
  NetworkSpec spec =
      read_llama_like(config, {.kv_heads = kv_heads, .head_dim = 256, .tied_embeddings = true});
  spec.activation = Activation::GeGlu;
  if (config.optional("hidden_activation")) {
    spec.activation = read_gated_activation(config, "hidden_activation");
  }
  if (model_type == "gemma") {
    return spec;
  }
  spec.sandwich_norm = true;
  const bool third = model_type == "gemma3_text";
  spec.qk_norm = third;
  const std::int64_t interval =
      third ? config.integer_or("sliding_window_pattern", 6, 1, limits::kMaxLayers) : 2;
  read_sliding_window(config, spec, /*window_if_absent=*/4096, interval);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_gemma{"gemma", kTypes, read};

}  // namespace orrery::models
