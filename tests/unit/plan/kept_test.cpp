// SPDX-License-Identifier: Apache-2.0
// What layers keep for their backward where the framework decides it: inputs of products in 8 and 4
// bits and what experts give back, against sums by hand.
#include "plan/block/kept.hpp"

#include <gtest/gtest.h>

#include "plan/block/quantised_casts.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

Plan fp8_plan(const std::string& network, int ep = 1, const std::string& cluster = "hgx-h100:1") {
  Plan plan = small_plan(small_spec(), cluster);
  plan.network = models::load_network(network);
  plan.precision = DType::Fp8;
  plan.execution.fp8_scaling = Fp8Scaling::Current;
  plan.pp = 1;
  plan.dp = plan.cluster.num_gpus();
  plan.stage_blocks = even_stages(plan.network, 1);
  BlockPlan layout;
  layout.ep = ep;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  return plan;
}

BlockCost last_layer_cost(const Plan& plan) {
  BlockCosts costs(plan);
  return costs.of(plan.network.chain[plan.network.chain.size() - 2], plan.layout_of(1),
                  plan.micro_batch);
}

std::int64_t saved(const Plan& plan) { return last_layer_cost(plan).saved.value(); }

std::int64_t tokens(const Plan& plan) { return plan.micro_batch * plan.sequence; }

// What two norms and the gate give is kept in one byte an element instead of two; what fused
// attention gives in two, as attention keeps it.
TEST(KeptInputs, OfALlamaLayerTakeAByte) {
  Plan plan = fp8_plan("llama3-8b", 1, "hgx-b200:1");
  const models::NetworkSpec& spec = plan.network.spec;
  const std::int64_t cast = tokens(plan) * (2 * spec.hidden + spec.ffn_hidden);
  const std::int64_t result = tokens(plan) * spec.heads * spec.head_dim;
  const std::int64_t in_8_bits = saved(plan);
  plan.execution.fp8_inputs = false;
  const std::int64_t in_16_bits = saved(plan);
  EXPECT_EQ(in_16_bits - in_8_bits, cast);
  plan.precision = DType::Bf16;
  EXPECT_EQ(saved(plan), in_16_bits);
  plan.precision = DType::Fp8;
  plan.execution.fp8_inputs = true;
  plan.execution.fp8_scaling = Fp8Scaling::Delayed;  // a copy more of attention's result
  EXPECT_EQ(saved(plan), in_8_bits + result);
  plan.execution.fp8_scaling = Fp8Scaling::Blocks;  // 32 elements have a scale of a byte
  EXPECT_EQ(saved(plan), in_8_bits + cast / 32);
  plan.precision = DType::Nvfp4;
  EXPECT_EQ(saved(plan), in_8_bits - cast * 7 / 16);
}

// Nothing but the projection keeps the result of attention in several kernels.
TEST(KeptInputs, OfTheProjectionTakeAByteWhereAttentionIsNotFused) {
  Plan plan = fp8_plan("llama3-8b");
  plan.execution.fused_attention = false;
  const models::NetworkSpec& spec = plan.network.spec;
  const std::int64_t in_8_bits = saved(plan);
  plan.execution.fp8_inputs = false;
  EXPECT_EQ(saved(plan) - in_8_bits,
            tokens(plan) * (2 * spec.hidden + spec.ffn_hidden + spec.heads * spec.head_dim));
}

// The router keeps its input in 16 bits, which serves the shared experts, too, but with delayed
// scaling.
TEST(KeptInputs, OfSharedExpertsAreTheRouters) {
  Plan plan = fp8_plan("deepseek-v3", 8);
  const models::NetworkSpec& spec = plan.network.spec;
  const models::MlaSpec& mla = spec.mla;
  const std::int64_t in_8_bits = saved(plan);
  const std::int64_t routed = spec.moe.top_k * (spec.hidden + spec.moe.ffn_hidden);
  const std::int64_t latents = spec.hidden + mla.kv_lora_rank + mla.q_lora_rank;
  plan.execution.fp8_inputs = false;
  EXPECT_EQ(saved(plan) - in_8_bits,
            tokens(plan) * (routed + latents + spec.moe.shared_ffn_hidden));
  plan.execution.fp8_inputs = true;
  plan.execution.fp8_scaling = Fp8Scaling::Delayed;
  EXPECT_EQ(saved(plan) - in_8_bits, tokens(plan) * (spec.hidden + spec.heads * mla.v_head_dim));
}

// Without router weights behind them, what experts give back is no part of a gradient.
TEST(KeptExpertOutputs, AreThoseThatAreWeighted) {
  Plan plan = fp8_plan("mixtral-8x7b", 8);
  plan.precision = DType::Bf16;
  const models::NetworkSpec& spec = plan.network.spec;
  const std::int64_t inside = saved(plan);
  const double summed = time_of(plan, "combine", false);
  EXPECT_DOUBLE_EQ(time_of(plan, "combine", true), summed);  // the same bytes the other way
  plan.execution.weighted_activations = false;
  EXPECT_EQ(saved(plan) - inside, 2 * tokens(plan) * spec.moe.top_k * spec.hidden);
  EXPECT_GT(time_of(plan, "combine", false), 1.5 * summed);
}

// silu(gate) * up in two kernels: the second keeps both its operands. RMS norms in ATen's: the
// input in fp32 and what was normalised, instead of the input in 16 bits.
TEST(KeptByEagerKernels, AreTheirInputs) {
  Plan plan = fp8_plan("llama3-8b");
  plan.precision = DType::Bf16;
  const models::NetworkSpec& spec = plan.network.spec;
  const std::int64_t fused = saved(plan);
  const std::int64_t gate = 2 * tokens(plan) * spec.ffn_hidden;
  plan.execution.fused_kernels = false;
  EXPECT_EQ(saved(plan) - fused, gate);
  plan.execution.fused_kernels = true;
  plan.execution.eager_elementwise = true;
  EXPECT_EQ(saved(plan) - fused, gate + 2 * (4 + 2 - 2) * tokens(plan) * spec.hidden);
}

// Where no kernel of scale, mask and softmax takes the scores, the softmax keeps what it gives in
// fp32 beside what is cast to 16 bits.
TEST(KeptByEagerKernels, AreScoresInFp32) {
  Plan plan = fp8_plan("llama3-8b");
  plan.precision = DType::Bf16;
  const std::int64_t heads = plan.network.spec.heads;
  for (const std::int64_t keys : {4096, 8192}) {
    plan.sequence = keys;
    plan.execution.fused_attention = true;
    const std::int64_t fused = saved(plan) - 4 * heads * keys;  // a sum of exponentials a row
    plan.execution.fused_attention = false;
    EXPECT_EQ(saved(plan) - fused, (keys > 4096 ? 6 : 2) * heads * keys * keys);
    plan.execution.softmax = Softmax::Eager;  // no cast
    EXPECT_EQ(saved(plan) - fused, 2 * heads * keys * keys);
    plan.execution.softmax = Softmax::Megatron;
  }
  plan.precision = DType::Fp32;
  plan.sequence = 4096;
  plan.execution.fused_attention = true;
  const std::int64_t fused = saved(plan) - 4 * heads * plan.sequence;
  plan.execution.fused_attention = false;
  EXPECT_EQ(saved(plan) - fused, 4 * heads * plan.sequence * plan.sequence);
}

// The product that scores experts is no layer of 8 bits.
TEST(QuantisedProducts, AreNotTheRouters) {
  const Plan plan = fp8_plan("mixtral-8x7b", 8);
  const models::Block& block = plan.network.blocks[static_cast<std::size_t>(plan.network.chain[1])];
  for (const models::Operator& op : block.operators) {
    const bool product = op.kind == models::OpKind::Gemm || op.kind == models::OpKind::GroupedGemm;
    EXPECT_EQ(is_quantised_product(op, DType::Fp8), product && op.name != "router") << op.name;
  }
}

// From B to W of a cut backward: cast inputs and output gradients, a byte an element, and
// attention's result in 16 bits.
TEST(KeptInputs, WaitForTheWeightGradientsInAByte) {
  Plan plan = fp8_plan("llama3-8b");
  const models::NetworkSpec& spec = plan.network.spec;
  BlockCosts costs(plan);
  SplitBackwards splits;
  const StageContent layer = {{.block = plan.network.chain[1], .layout = plan.layout_of(1)}};
  const std::int64_t heads = (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
  const std::int64_t inputs = 2 * spec.hidden + spec.ffn_hidden;
  const std::int64_t gradients = heads + 2 * spec.hidden + 2 * spec.ffn_hidden;
  EXPECT_EQ(splits.kept(layer, plan, costs).layers.value(),
            tokens(plan) * (inputs + gradients + 2 * spec.heads * spec.head_dim));
}

// Per-operator checkpointing keeps what was reduced and scattered or exchanged (torchtitan's
// _save_list), so its replay gathers alone; sums that are not scattered are made anew.
TEST(KeptProducts, AreNotCommunicatedAgain) {
  const auto lowered = [](const BlockPlan& layout) {
    return Layer(gpt(1024, 16), layout, 1, 2, 4096).steps();
  };
  BlockPlan layout;
  layout.recompute = Recompute::Products;
  layout.tp = 4;
  EXPECT_EQ(count(lowered(layout).recompute, CommKind::AllReduce), 2);
  layout.sequence_parallel = true;
  const BlockSteps scattered = lowered(layout);
  EXPECT_EQ(count(scattered.forward, CommKind::ReduceScatter), 2);
  EXPECT_EQ(count(scattered.recompute, CommKind::ReduceScatter), 0);
  EXPECT_EQ(count(scattered.forward, CommKind::AllGather), 2);
  EXPECT_EQ(count(scattered.recompute, CommKind::AllGather), 1);  // what mlp-up gives is kept
  BlockPlan heads;
  heads.recompute = Recompute::Products;
  heads.cp = 4;
  heads.context = ContextParallel::Ulysses;
  EXPECT_EQ(count(lowered(heads).forward, CommKind::AllToAll), 4);
  EXPECT_EQ(count(lowered(heads).recompute, CommKind::AllToAll), 0);
  heads.recompute = Recompute::Full;
  EXPECT_EQ(count(lowered(heads).recompute, CommKind::AllToAll), 4);
}

}  // namespace
}  // namespace orrery::plan
