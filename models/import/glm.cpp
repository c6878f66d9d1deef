// SPDX-License-Identifier: Apache-2.0
// GLM-4: LLaMA with biases of q, k and v; the releases of 2025 have norms on both sides of each
// part (glm4) or experts behind first dense layers (glm4_moe, GLM-4.5). Layers of multi-token
// prediction (num_nextn_predict_layers) are a training option and left out.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 3> kTypes = {"glm", "glm4", "glm4_moe"};

void read_mixture(ObjectReader& config, NetworkSpec& spec) {
  spec.moe = read_experts(config, {.experts = "n_routed_experts"});
  spec.moe.shared_ffn_hidden =
      config.integer_or("n_shared_experts", 0, 0, 64) * spec.moe.ffn_hidden;
  spec.moe.first_dense_layers =
      config.integer_or("first_k_dense_replace", 0, 0, limits::kMaxLayers);
  spec.qk_norm = config.boolean_or("use_qk_norm", false);
}

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(config, {"n_routed_experts", "n_shared_experts", "num_experts_per_tok",
                                "moe_intermediate_size"});
  const bool mixture = model_type == "glm4_moe";
  NetworkSpec spec =
      read_llama_like(config, {.kv_heads = mixture ? 8 : 2, .head_dim = mixture ? 0 : 128});
  spec.attention_bias = config.boolean_or("attention_bias", !mixture);
  spec.attention_output_bias = false;
  spec.sandwich_norm = model_type == "glm4";
  if (mixture) {
    read_mixture(config, spec);
  }
  return spec;
}

}  // namespace

extern const ConfigImporter importer_glm{"glm", kTypes, read};

}  // namespace orrery::models
