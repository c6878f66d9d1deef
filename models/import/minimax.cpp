// SPDX-License-Identifier: Apache-2.0
// MiniMax-M2: experts of width intermediate_size in every layer, norms of q and k.
#include <array>

#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"minimax_m2"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {"num_local_experts", "num_experts_per_tok", "router_aux_loss_coef",
                                "output_router_logits", "router_jitter_noise"});
  NetworkSpec spec = read_llama_like(config, {.kv_heads = 8, .head_dim = 128});
  spec.qk_norm = config.boolean_or("use_qk_norm", true);
  spec.moe = read_experts(config, {.experts = "num_local_experts", .width = "intermediate_size"});
  return spec;
}

}  // namespace

extern const ConfigImporter importer_minimax{"minimax", kTypes, read};

}  // namespace orrery::models
