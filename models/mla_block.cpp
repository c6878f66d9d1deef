// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention: queries, keys and values come from low-rank latents; a rotary part
// of the key is shared by all heads (DeepSeek-V2, section 2.1). Latent widths are never sharded.
#include "models/blocks.hpp"

namespace orrery::models {
namespace {

Dims latent(std::int64_t width) { return {{Var::Latent, width}}; }

struct Latents {
  int query = 0;  // normalised query latent; the block's input for full-rank queries
  int key_value = 0;
  int rotary_key = 0;
};

Latents add_down_projections(BlockBuilder& builder, const NetworkSpec& spec, int input) {
  const MlaSpec& mla = spec.mla;
  std::vector<BlockBuilder::Projection> projections{{"kv_latent", latent(mla.kv_lora_rank)},
                                                    {"k_rope_raw", latent(mla.qk_rope_head_dim)}};
  if (mla.q_lora_rank > 0) {
    projections.push_back({"q_latent", latent(mla.q_lora_rank)});
  }
  const std::vector<int> outputs =
      builder.gemm("latent_down", input, {Var::Hidden}, projections,
                   {.bias = spec.attention_bias, .target = &AdapterSpec::qkv});
  Latents latents{.query = input, .rotary_key = outputs[1]};
  latents.key_value = builder.norm("kv_latent_norm", outputs[0], spec.norm);
  if (mla.q_lora_rank > 0) {
    latents.query = builder.norm("q_latent_norm", outputs[2], spec.norm);
  }
  return latents;
}

int add_queries(BlockBuilder& builder, const NetworkSpec& spec, const Latents& latents) {
  const MlaSpec& mla = spec.mla;
  const bool full_rank = mla.q_lora_rank == 0;
  const Dims columns{query_heads(spec),
                     {Var::HeadDim, mla.qk_nope_head_dim + mla.qk_rope_head_dim}};
  const int raw =
      builder.linear("q_up", latents.query, {full_rank ? Var::Hidden : Var::Latent},
                     {"q_raw", columns}, {.save_input = !full_rank, .target = &AdapterSpec::qkv});
  const int q = builder.activation("q", builder.dims(raw));
  builder.pointwise("rotary_q", {raw}, {q}, {.flops_per_point = 6.0}).role = OpRole::Rotary;
  return q;
}

}  // namespace

int add_mla(BlockBuilder& builder, const NetworkSpec& spec, int input,
            const LayerVariant& variant) {
  const MlaSpec& mla = spec.mla;
  const Latents latents = add_down_projections(builder, spec, input);
  const int q = add_queries(builder, spec, latents);
  const Dim head{Var::KvHead, spec.kv_heads};
  const std::vector<int> kv =
      builder.gemm("kv_up", latents.key_value, {Var::Latent},
                   {{"k_nope", {head, {Var::HeadDim, mla.qk_nope_head_dim}}},
                    {"v", {head, {Var::HeadDim, mla.v_head_dim}}}},
                   {.target = &AdapterSpec::qkv});
  const int k = builder.activation(
      "k", builder.token_dims({head, {Var::HeadDim, mla.qk_nope_head_dim + mla.qk_rope_head_dim}}));
  builder.pointwise("rotary_k", {kv[0], latents.rotary_key}, {k}, {.flops_per_point = 6.0}).role =
      OpRole::Rotary;
  builder.block.attention = {.heads = spec.heads,
                             .kv_heads = spec.kv_heads,
                             .head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim,
                             .value_head_dim = mla.v_head_dim,
                             .causal = variant.causal,
                             .window = variant.windowed ? spec.sliding_window : 0,
                             .dropout = spec.attention_dropout > 0};
  const int context = add_attention_core(builder, spec, {.q = q, .k = k, .v = kv[1]});
  return builder.linear("attention_projection", context, {Var::Head, Var::HeadDim},
                        {"attention_output", {{Var::Hidden, spec.hidden}}},
                        {.bias = spec.attention_output_bias, .target = &AdapterSpec::o});
}

}  // namespace orrery::models
