// SPDX-License-Identifier: Apache-2.0
// Multi-head, grouped-query and cross attention.
#include <algorithm>

#include "base/error.hpp"
#include "models/blocks.hpp"

namespace orrery::models {
namespace {

constexpr std::int64_t kRelativeBuckets = 32;

Dims head_dims(const NetworkSpec& spec) {
  return {query_heads(spec), {Var::HeadDim, spec.head_dim}};
}

Dims kv_dims(const NetworkSpec& spec) {
  return {{Var::KvHead, spec.kv_heads}, {Var::HeadDim, spec.head_dim}};
}

int rotate(BlockBuilder& builder, const std::string& name, int input) {
  const int output = builder.activation(name, builder.dims(input));
  builder.pointwise("rotary_" + name, {input}, {output}, {.flops_per_point = 6.0}).role =
      OpRole::Rotary;
  return output;
}

int project_output(BlockBuilder& builder, const NetworkSpec& spec, const std::string& prefix,
                   int context) {
  return builder.linear(prefix + "attention_projection", context, {Var::Head, Var::HeadDim},
                        {prefix + "attention_output", {{Var::Hidden, spec.hidden}}},
                        {.bias = spec.attention_output_bias, .target = &AdapterSpec::o});
}

// T5's table of what a distance adds to the scores of a head: all layers of a stack read it, and
// its gradient is a sum over the queries of each, as that of a weight of attention. The first one
// holds it.
void add_relative_bias(BlockBuilder& builder, const NetworkSpec& spec) {
  const int table =
      builder.weight("w_relative_bias", {{Var::Latent, kRelativeBuckets}, query_heads(spec)});
  builder.block.operators.back().weights.push_back(table);
}

const Dim& position_dim(const Dims& dims) {
  const auto found =
      std::find_if(dims.begin(), dims.end(), [](const Dim& dim) { return dim.var == Var::Seq; });
  ORRERY_CHECK(found != dims.end(), "keys without positions");
  return *found;
}

// What the unfused core keeps: the softmax output and, with dropout, a mask and the dropped scores;
// the fused core keeps the log-sum-exp of each row instead.
void save_core(Operator& op, int scores, int lse, bool dropout) {
  op.saved.push_back({.tensor = scores, .copies = dropout ? 2.0 : 1.0, .attention_core = true});
  if (dropout) {
    op.saved.push_back({.tensor = scores, .element = Element::Mask, .attention_core = true});
  }
  op.saved.push_back({.tensor = lse, .element = Element::Fp32, .fused_only = true});
}

}  // namespace

int add_attention_core(BlockBuilder& builder, const NetworkSpec& spec, const AttentionCore& core) {
  const Dim head = query_heads(spec);
  const Dim query_width = builder.dims(core.q).back();
  const Dim value_width = builder.dims(core.v).back();
  const int context =
      builder.activation(core.name + "_context", builder.token_dims({head, value_width}));
  const Dim keys{Var::KeySeq, kFromWorkload, position_dim(builder.dims(core.k)).scale};
  const int scores =
      builder.activation(core.name + "_scores", {kBatchDim, head, builder.positions, keys});
  const int lse =
      builder.activation(core.name + "_lse", {kBatchDim, head, builder.positions}, Element::Fp32);
  Operator op{.name = core.name,
              .kind = OpKind::Attention,
              .inputs = {core.q, core.k, core.v},
              .outputs = {context},
              .reduced = {Var::KeySeq},
              .attention_core = true,
              .cross_attention = core.cross};
  op.flops_per_point =
      2.0 + 2.0 * static_cast<double>(value_width.extent) / static_cast<double>(query_width.extent);
  for (const int input : op.inputs) {
    builder.save(op, input);
  }
  save_core(op, scores, lse, spec.attention_dropout > 0);
  builder.add(std::move(op));
  return context;
}

int add_attention(BlockBuilder& builder, const NetworkSpec& spec, int input,
                  const LayerVariant& variant) {
  const bool rotary = spec.position == PositionKind::Rotary;
  const std::string raw = rotary ? "_raw" : "";
  std::vector<int> qkv =
      builder.gemm("qkv", input, {Var::Hidden},
                   {{"q" + raw, head_dims(spec)}, {"k" + raw, kv_dims(spec)}, {"v", kv_dims(spec)}},
                   {.bias = spec.attention_bias, .target = &AdapterSpec::qkv});
  if (spec.qk_norm) {
    qkv[0] = builder.norm("q_norm", qkv[0], spec.norm);
    qkv[1] = builder.norm("k_norm", qkv[1], spec.norm);
  }
  if (rotary) {
    qkv[0] = rotate(builder, "q", qkv[0]);
    qkv[1] = rotate(builder, "k", qkv[1]);
  }
  builder.block.attention = {.heads = spec.heads,
                             .kv_heads = spec.kv_heads,
                             .head_dim = spec.head_dim,
                             .value_head_dim = spec.head_dim,
                             .causal = variant.causal,
                             .window = variant.windowed ? spec.sliding_window : 0,
                             .dropout = spec.attention_dropout > 0};
  const int context = add_attention_core(builder, spec, {.q = qkv[0], .k = qkv[1], .v = qkv[2]});
  if (spec.position == PositionKind::RelativeBias && variant.first) {
    add_relative_bias(builder, spec);
  }
  return project_output(builder, spec, "", context);
}

int add_cross_attention(BlockBuilder& builder, const NetworkSpec& spec, int input, int memory,
                        bool save_memory) {
  const int q = builder.linear("cross_q", input, {Var::Hidden}, {"cross_q", head_dims(spec)},
                               {.bias = spec.attention_bias, .target = &AdapterSpec::qkv});
  const std::vector<int> kv = builder.gemm(
      "cross_kv", memory, {Var::Hidden}, {{"cross_k", kv_dims(spec)}, {"cross_v", kv_dims(spec)}},
      {.bias = spec.attention_bias, .save_input = save_memory, .target = &AdapterSpec::qkv});
  const int context = add_attention_core(
      builder, spec, {.name = "cross_attention", .q = q, .k = kv[0], .v = kv[1], .cross = true});
  return project_output(builder, spec, "cross_", context);
}

}  // namespace orrery::models
