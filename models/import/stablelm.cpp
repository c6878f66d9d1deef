// SPDX-License-Identifier: Apache-2.0
// StableLM: LLaMA with layer norms.
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"stablelm"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {});
  NetworkSpec spec = read_llama_like(config);
  spec.norm = NormKind::LayerNorm;
  spec.attention_bias = config.boolean_or("use_qkv_bias", false);
  spec.attention_output_bias = false;
  spec.qk_norm = config.boolean_or("qk_layernorm", false);
  spec.parallel_block = config.boolean_or("use_parallel_residual", false);
  spec.hidden_dropout = read_dropout(config, "hidden_dropout", 0.0);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_stablelm{"stablelm", kTypes, read};

}  // namespace orrery::models
