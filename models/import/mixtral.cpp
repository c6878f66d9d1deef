// SPDX-License-Identifier: Apache-2.0
// Mixtral: every layer is a mixture of experts of width intermediate_size.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"mixtral"};

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {"num_local_experts", "num_experts_per_tok", "router_aux_loss_coef",
                                "output_router_logits", "router_jitter_noise"});
  NetworkSpec spec = read_llama_like(config, {.kv_heads = 8});
  spec.moe.experts = config.integer_or("num_local_experts", 8, 1, limits::kMaxExperts);
  spec.moe.top_k = config.integer_or("num_experts_per_tok", 2, 1, limits::kMaxExperts);
  spec.moe.ffn_hidden = spec.ffn_hidden;
  read_sliding_window(config, spec, /*window_if_absent=*/0, /*interval=*/0);
  return spec;
}

}  // namespace

extern const ConfigImporter importer_mixtral{"mixtral", kTypes, read};

}  // namespace orrery::models
