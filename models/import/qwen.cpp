// SPDX-License-Identifier: Apache-2.0
// Qwen 2 (biases of q, k, v) and Qwen 3 (norms of q and k), dense and mixture of experts. The gate
// of Qwen 2's shared expert, hidden x 1, is left out.
#include <algorithm>
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 4> kTypes = {"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"};

void read_windows(ObjectReader& config, NetworkSpec& spec) {
  const bool used = config.boolean_or("use_sliding_window", false);
  const std::int64_t first =
      config.integer_or("max_window_layers", spec.layers, 0, limits::kMaxLayers);
  if (used && first > 0 && first < spec.layers) {
    config.required("max_window_layers")
        .fail("sliding windows in the last layers only are not modelled");
  }
  if (used && first == 0) {
    read_sliding_window(config, spec, /*window_if_absent=*/4096, /*interval=*/0);
  }
}

// Dense layers must come first.
std::int64_t dense_layers(ObjectReader& config) {
  const std::optional<JsonReader> layers = config.optional("mlp_only_layers");
  if (!layers) {
    return 0;
  }
  std::int64_t expected = 0;
  for (const JsonReader& layer : layers->array(limits::kMaxLayers)) {
    if (layer.integer(0, limits::kMaxLayers) != expected) {
      layers->fail("mlp_only_layers other than the first ones are not modelled");
    }
    ++expected;
  }
  return expected;
}

void read_mixture(ObjectReader& config, NetworkSpec& spec) {
  expect_integer(config, "decoder_sparse_step", 1);
  spec.moe = read_experts(config, {});
  spec.moe.shared_ffn_hidden =
      config.integer_or("shared_expert_intermediate_size", 0, 0, limits::kMaxFfn);
  spec.moe.first_dense_layers = dense_layers(config);
}

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  const bool third = model_type.starts_with("qwen3");
  NetworkSpec spec = read_llama_like(config, {.kv_heads = 0, .head_dim = third ? 128 : 0});
  if (third) {
    spec.qk_norm = true;
  } else {
    spec.attention_bias = true;
    spec.attention_output_bias = false;
  }
  read_windows(config, spec);
  if (model_type.ends_with("_moe")) {
    refuse_unknown_parts(config, {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                                  "shared_expert_intermediate_size", "router_aux_loss_coef",
                                  "output_router_logits"});
    read_mixture(config, spec);
  } else {
    refuse_unknown_parts(config, {});
  }
  return spec;
}

}  // namespace

extern const ConfigImporter importer_qwen{"qwen", kTypes, read};

}  // namespace orrery::models
