// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5: LLaMA, dense or with experts from a layer on.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 2> kTypes = {"ernie4_5", "ernie4_5_moe"};

void read_mixture(ObjectReader& config, NetworkSpec& spec) {
  expect_integer(config, "moe_layer_interval", 1);
  if (const auto last = config.optional("moe_layer_end_index");
      last && last->integer(-1, limits::kMaxLayers) != -1 &&
      last->integer(-1, limits::kMaxLayers) != spec.layers - 1) {
    last->fail("dense layers behind those with experts are not modelled", "-1");
  }
  spec.moe = read_experts(config, {.experts = "moe_num_experts", .top_k = "moe_k"});
  spec.moe.shared_ffn_hidden =
      config.integer_or("moe_num_shared_experts", 2, 0, 64) * spec.moe.ffn_hidden;
  spec.moe.first_dense_layers =
      config.integer_or("moe_layer_start_index", 1, 0, limits::kMaxLayers);
}

NetworkSpec read(ObjectReader& config, std::string_view model_type) {
  refuse_unknown_parts(
      config, {"moe_num_experts", "moe_k", "moe_intermediate_size", "moe_num_shared_experts",
               "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval", "moe_norm_min",
               "output_router_logits", "router_aux_loss_coef"});
  NetworkSpec spec = read_llama_like(config, {.tied_embeddings = true});
  set_biases(spec, config.boolean_or("use_bias", false));
  if (model_type == "ernie4_5_moe") {
    read_mixture(config, spec);
  }
  return spec;
}

}  // namespace

extern const ConfigImporter importer_ernie{"ernie", kTypes, read};

}  // namespace orrery::models
