// SPDX-License-Identifier: Apache-2.0
// DeepSeek V2 and V3, Kimi K2: latent attention, routed and shared experts behind first dense
// layers. Layers of multi-token prediction (num_nextn_predict_layers) are a training option and
// left out.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 3> kTypes = {"deepseek_v2", "deepseek_v3", "kimi_k2"};

void read_latents(ObjectReader& config, NetworkSpec& spec) {
  const auto width = [&](std::string_view key) {
    return config.required(key).integer(1, limits::kMaxHidden);
  };
  spec.mla.kv_lora_rank = width("kv_lora_rank");
  spec.mla.q_lora_rank = config.integer_or("q_lora_rank", 0, 1, limits::kMaxHidden);
  spec.mla.qk_nope_head_dim = width("qk_nope_head_dim");
  spec.mla.qk_rope_head_dim = width("qk_rope_head_dim");
  spec.mla.v_head_dim = width("v_head_dim");
  spec.kv_heads = spec.heads;
}

constexpr std::array<std::string_view, 3> kMethods = {"greedy", "group_limited_greedy", "noaux_tc"};

// Whether the router takes experts of some groups alone: "greedy", V2's default, takes any.
bool limits_groups(ObjectReader& config, std::string_view type) {
  const auto method = config.optional("topk_method");
  return method ? method->one_of(kMethods) != kMethods.front() : type != "deepseek_v2";
}

void read_mixture(ObjectReader& config, NetworkSpec& spec, std::string_view type) {
  if (!config.optional("n_routed_experts")) {
    return;
  }
  spec.moe = read_experts(config, {.experts = "n_routed_experts"});
  const std::int64_t shared = config.integer_or("n_shared_experts", 0, 0, 64);
  spec.moe.shared_ffn_hidden = shared * spec.moe.ffn_hidden;
  spec.moe.first_dense_layers =
      config.integer_or("first_k_dense_replace", 0, 0, limits::kMaxLayers);
  if (limits_groups(config, type)) {
    spec.moe.groups = config.integer_or("n_group", 1, 1, limits::kMaxExperts);
    spec.moe.groups_per_token = config.integer_or("topk_group", 1, 1, limits::kMaxExperts);
  }
  spec.moe.layer_frequency = config.integer_or("moe_layer_freq", 1, 1, limits::kMaxLayers);
}

NetworkSpec read(ObjectReader& config, std::string_view type) {
  refuse_unknown_parts(config,
                       {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
                        "n_shared_experts", "moe_layer_freq", "q_lora_rank", "kv_lora_rank"});
  NetworkSpec spec = read_llama_like(config);
  read_latents(config, spec);
  read_mixture(config, spec, type);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_deepseek{"deepseek", kTypes, read};

}  // namespace orrery::models
