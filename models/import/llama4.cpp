// SPDX-License-Identifier: Apache-2.0
// Llama 4 (text): top-1 experts beside a shared one, in every layer or every n-th (which of n
// layers is of no matter to times and memory), attention within chunks of tokens in three of four
// layers. Chunks count as windows of that length, which look back further on average.
#include <array>

#include "base/limits.hpp"
#include "models/config_fields.hpp"
#include "models/config_import.hpp"

namespace orrery::models {
namespace {

constexpr std::array<std::string_view, 1> kTypes = {"llama4_text"};

void read_mixture(ObjectReader& config, NetworkSpec& spec) {
  spec.moe = read_experts(config, {.experts = "num_local_experts", .width = "intermediate_size"});
  spec.moe.shared_ffn_hidden = spec.moe.ffn_hidden;
  spec.moe.layer_frequency =
      config.integer_or("interleave_moe_layer_step", 1, 1, limits::kMaxLayers);
  if (spec.layers % spec.moe.layer_frequency != 0) {
    config.required("interleave_moe_layer_step")
        .fail("steps that do not divide the layers are not modelled");
  }
  spec.ffn_hidden = config.integer_or("intermediate_size_mlp", 16384, 1, limits::kMaxFfn);
}

NetworkSpec read(ObjectReader& config, std::string_view) {
  refuse_unknown_parts(config, {"num_local_experts", "num_experts_per_tok", "moe_layers",
                                "interleave_moe_layer_step", "router_aux_loss_coef",
                                "router_jitter_noise", "output_router_logits"});
  NetworkSpec spec = read_llama_like(config, {.kv_heads = 8, .head_dim = 128});
  read_mixture(config, spec);
  spec.sliding_window = config.integer_or("attention_chunk_size", 8192, 0, limits::kMaxSequence);
  spec.global_attention_interval =
      spec.sliding_window > 0
          ? config.integer_or("no_rope_layer_interval", 4, 1, limits::kMaxLayers)
          : 0;
  return spec;
}

}  // namespace

extern const ConfigImporter importer_llama4{"llama4", kTypes, read};

}  // namespace orrery::models
