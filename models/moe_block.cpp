// SPDX-License-Identifier: Apache-2.0
// Mixture of experts in place of the feed-forward network: router, permutation, grouped GEMMs over
// the experts, weighted combination, shared experts. Permuted tokens keep the dims
// {Batch, Seq, Choice}: over all experts there are Batch x Seq x top_k rows, whichever expert each
// goes to; a capacity factor pads them and scales Seq. The router's width is a Latent, because its
// gate is replicated where the experts are sharded.
#include "models/blocks.hpp"

namespace orrery::models {
namespace {

struct Routing {
  int tokens = 0;   // {Batch, Seq, Choice, Hidden}
  int weights = 0;  // {Batch, Seq, Choice}, fp32
};

Dims choice_dims(const BlockBuilder& builder, const MoeSpec& moe, Dims rest) {
  Dim padded = builder.positions;
  padded.scale *= moe.capacity_factor > 0 ? moe.capacity_factor : 1.0;
  Dims dims{kBatchDim, padded, {Var::Choice, moe.top_k}};
  dims.insert(dims.end(), rest.begin(), rest.end());
  return dims;
}

Routing add_routing(BlockBuilder& builder, const NetworkSpec& spec, int input) {
  const MoeSpec& moe = spec.moe;
  const int logits =
      builder.linear("router", input, {Var::Hidden},
                     {"router_logits", {{Var::Latent, moe.experts}}}, {.bias = moe.router_bias});
  builder.block.operators.back().role = OpRole::Routing;
  const int probabilities = builder.activation(
      "router_probabilities", builder.token_dims({{Var::Latent, moe.experts}}), Element::Fp32);
  const int weights = builder.activation(
      "router_weights", builder.token_dims({{Var::Choice, moe.top_k}}), Element::Fp32);
  Operator top_k{.name = "top_k",
                 .kind = OpKind::Router,
                 .inputs = {logits},
                 .outputs = {probabilities, weights},
                 .flops_per_point = 5.0};
  builder.save(top_k, probabilities);
  builder.add(std::move(top_k));

  const int tokens =
      builder.activation("permuted", choice_dims(builder, moe, {{Var::Hidden, spec.hidden}}));
  const auto copies = static_cast<double>(moe.top_k);
  builder.add({.name = "permute",
               .kind = OpKind::Permute,
               .inputs = {input, weights},
               .outputs = {tokens},
               .bytes_factor = 2.0 * copies / (copies + 1.0),  // a token is read once per copy
               .backward_bytes_factor = 1.0});
  return {tokens, weights};
}

int add_experts(BlockBuilder& builder, const NetworkSpec& spec, int tokens) {
  const MoeSpec& moe = spec.moe;
  const Dim expert{Var::Expert, moe.experts};
  const Dims columns{{Var::Ffn, moe.ffn_hidden}};
  std::vector<BlockBuilder::Projection> projections{{"expert_up", columns}};
  if (is_gated(spec.activation)) {
    projections.insert(projections.begin(), {"expert_gate", columns});
  }
  BlockBuilder::GemmOptions grouped{.kind = OpKind::GroupedGemm,
                                    .leading = {expert},
                                    .bias = spec.mlp_bias,
                                    .target = &AdapterSpec::up};
  const std::vector<int> inner =
      builder.gemm("experts_up", tokens, {Var::Hidden}, projections, grouped);
  const int active = add_activation(builder, spec.activation, inner, "expert_activation");
  grouped.target = &AdapterSpec::down;
  return builder.linear("experts_down", active, {Var::Ffn},
                        {"expert_output", {{Var::Hidden, spec.hidden}}}, grouped);
}

int add_combine(BlockBuilder& builder, const NetworkSpec& spec, int expert_output, int weights) {
  const int output =
      builder.activation("moe_output", builder.token_dims({{Var::Hidden, spec.hidden}}));
  Operator combine{.name = "combine",
                   .kind = OpKind::Permute,
                   .inputs = {expert_output, weights},
                   .outputs = {output},
                   .reduced = {Var::Choice},
                   .flops_per_point = 2.0};
  builder.save(combine, expert_output);
  combine.saved.back().unweighted = true;
  builder.save(combine, weights);
  builder.add(std::move(combine));
  return output;
}

}  // namespace

int add_moe(BlockBuilder& builder, const NetworkSpec& spec, int input) {
  const MoeSpec& moe = spec.moe;
  builder.block.experts = moe.experts;
  builder.block.top_k = moe.top_k;
  builder.block.groups = moe.groups;
  builder.block.groups_per_token = moe.groups_per_token;
  const Routing routing = add_routing(builder, spec, input);
  const int experts = add_experts(builder, spec, routing.tokens);
  const int combined = add_combine(builder, spec, experts, routing.weights);
  if (moe.shared_ffn_hidden == 0) {
    return combined;
  }
  std::vector<Operator>& operators = builder.block.operators;
  const std::size_t first = operators.size();
  const int shared =
      add_mlp(builder, spec, input, moe.shared_ffn_hidden, "shared_", /*save_input=*/false);
  for (std::size_t index = first; index < operators.size(); ++index) {
    operators[index].role = OpRole::SharedExpert;
  }
  return builder.residual("shared_add", shared, combined, /*dropout=*/false, "experts_sum");
}

}  // namespace orrery::models
