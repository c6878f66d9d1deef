// SPDX-License-Identifier: Apache-2.0
// gpt-oss: experts with biases in every layer, a window in every second one. Attention sinks, a
// number a head, are left out.
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"gpt_oss"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {"num_local_experts", "num_experts_per_tok", "experts_per_token",
                                "router_aux_loss_coef", "output_router_logits"});
  NetworkSpec spec = read_llama_like(config, {.kv_heads = 8, .head_dim = 64});
  spec.attention_bias = config.boolean_or("attention_bias", true);
  spec.attention_output_bias = spec.attention_bias;
  spec.mlp_bias = true;
  spec.moe = read_experts(config, {.experts = "num_local_experts", .width = "intermediate_size"});
  spec.moe.router_bias = true;
  read_sliding_window(config, spec, /*window_if_absent=*/128, /*interval=*/2);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_gpt_oss{"gpt-oss", kTypes, read};

}  // namespace orrery::models
