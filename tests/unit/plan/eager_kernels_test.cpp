// SPDX-License-Identifier: Apache-2.0
// What frameworks run that fuse less: norms and rotary positions in PyTorch's kernels, projections
// by themselves, partial attention merged in fp32, passes over the gradient buffer.
#include "plan/block/eager_kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/block/cost.hpp"
#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

models::NetworkSpec eager_llama_spec() {
  models::NetworkSpec spec = small_spec();
  spec.norm = models::NormKind::RmsNorm;
  spec.position = models::PositionKind::Rotary;
  spec.activation = models::Activation::SwiGlu;
  spec.attention_bias = spec.attention_output_bias = spec.mlp_bias = false;
  return spec;
}

Plan llama_on(int context_ranks) { return one_replica(eager_llama_spec(), {.cp = context_ranks}); }

double stream_bytes(const Plan& plan) {
  return 2.0 * static_cast<double>(plan.micro_batch * plan.sequence * plan.network.spec.hidden);
}

TEST(EagerKernelsTest, ComposedNormsMoveNineTimesTheBytes) {
  Plan plan = llama_on(1);
  const double fused = time_of(plan, "attention_norm", true);
  const double backward = time_of(plan, "attention_norm", false);
  plan.execution.eager_elementwise = true;
  EXPECT_GT(time_of(plan, "attention_norm", true), 8 * fused);
  EXPECT_GT(time_of(plan, "attention_norm", false), 12 * backward);
  // 36 bytes an element of 2 bytes, seven launches.
  EXPECT_GT(time_of(plan, "attention_norm", true),
            18 * stream_bytes(plan) / plan.cluster.gpu.hbm_bandwidth.value());
}

TEST(EagerKernelsTest, LayerNormsAreOneKernelEverywhere) {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  const double fused = time_of(plan, "attention_norm", true);
  plan.execution.eager_elementwise = true;
  EXPECT_EQ(time_of(plan, "attention_norm", true), fused);
}

TEST(EagerKernelsTest, RotaryAndGateRunAsSeveralKernels) {
  Plan plan = llama_on(1);
  const double rotary = time_of(plan, "rotary_q", true);
  const double gate = time_of(plan, "mlp_activation", false);
  plan.execution.eager_elementwise = true;
  EXPECT_GT(time_of(plan, "rotary_q", true), 4 * rotary);
  EXPECT_GT(time_of(plan, "mlp_activation", false), 1.7 * gate);
  plan.execution.eager_elementwise = false;
  plan.execution.fused_kernels = false;  // norm and rotary have kernels, the gate has none
  EXPECT_GT(time_of(plan, "mlp_activation", false), 1.7 * gate);
  EXPECT_EQ(time_of(plan, "rotary_q", true), rotary);
}

TEST(EagerKernelsTest, AdditionsWithoutDropoutAreOneKernel) {
  Plan plan = llama_on(1);
  const double fused = time_of(plan, "mlp_residual", true);
  plan.execution.fused_kernels = false;
  EXPECT_EQ(time_of(plan, "mlp_residual", true), fused);
}

TEST(EagerKernelsTest, SeparateProjectionsAddTheirInputGradients) {
  Plan plan = llama_on(1);
  const double fused = time_of(plan, "mlp_up", false);
  const double forward = time_of(plan, "mlp_up", true);
  plan.execution.fused_projections = false;
  const double compiled = time_of(plan, "mlp_up", false) - fused;
  const double stream = stream_bytes(plan) / plan.cluster.gpu.hbm_bandwidth.value();
  EXPECT_GT(compiled, 3 * stream);  // gate and up: two are read, one is written
  EXPECT_GE(time_of(plan, "mlp_up", true), forward);
  const double qkv = time_of(plan, "qkv", false);
  plan.execution.fused_kernels = false;
  // Three gradients: four passes at once, or three for each of two additions.
  EXPECT_GT(time_of(plan, "qkv", false), qkv + 1.5 * stream);
}

TEST(EagerKernelsTest, ExchangedHeadsAreCopiedBeforeAndAfter) {
  Plan exchanging = llama_on(4);
  exchanging.blocks.front().layout.context = ContextParallel::Ulysses;
  // One rank with a quarter of the heads runs the same kernel.
  models::NetworkSpec quarter = exchanging.network.spec;
  quarter.head_dim = quarter.hidden / quarter.heads;
  quarter.heads /= 4;
  quarter.kv_heads /= 4;
  Plan alone = llama_on(1);
  alone.network = models::build_network(quarter, "test");
  for (const bool forward : {true, false}) {
    const double copies =
        time_of(exchanging, "attention", forward) - time_of(alone, "attention", forward);
    const double whole = stream_bytes(exchanging) / exchanging.cluster.gpu.hbm_bandwidth.value();
    // Read and written twice: a quarter each of q, k, v and the context.
    EXPECT_GT(copies, 4 * whole);
    EXPECT_LT(copies, 8 * whole);
  }
}

// A mix of one ring rank is Ulysses written otherwise; inside a ring as many bytes are copied.
TEST(EagerKernelsTest, HeadsExchangedInsideAMixAreCopied) {
  Plan plan = llama_on(4);
  BlockPlan& layout = plan.blocks.front().layout;
  layout.context = ContextParallel::Ulysses;
  const double ulysses = time_of(plan, "attention", true);
  layout.context = ContextParallel::Mix;
  layout.ulysses_degree = 4;
  EXPECT_EQ(time_of(plan, "attention", true), ulysses);
  layout.ulysses_degree = 1;
  layout.context = ContextParallel::Ring;
  const double ring = time_of(plan, "attention", true);
  layout.context = ContextParallel::Mix;
  EXPECT_EQ(time_of(plan, "attention", true), ring);
}

TEST(EagerKernelsTest, EagerRingMergesInFp32) {
  Plan plan = llama_on(4);
  const double fused = time_of(plan, "attention", true);
  plan.execution.eager_ring = true;
  const double part = 0.25 * stream_bytes(plan) / plan.cluster.gpu.hbm_bandwidth.value();
  // 9.5 bytes an element of the output instead of 6, three times.
  EXPECT_GT(time_of(plan, "attention", true) - fused, 3 * 1.75 * part);
  EXPECT_GT(time_of(plan, "attention", false), fused);
  const double eager = time_of(plan, "attention", true);
  plan.execution.fused_kernels = false;
  EXPECT_GT(time_of(plan, "attention", true), eager + 3 * 14 * part);  // 9.5 bytes fused, 38 apart
}

Plan fp8_on_hopper(int tensor_ranks) {
  Plan plan =
      one_replica(eager_llama_spec(), {.tp = tensor_ranks, .sequence_parallel = tensor_ranks > 1},
                  "hgx-h100:1");
  plan.precision = DType::Fp8;
  check_plan(plan, "test");
  return plan;
}

double gathered_bytes(const Plan& plan, std::string_view tensor) {
  const BlockCosts costs(plan);
  const BlockSteps steps =
      costs.steps_of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch);
  for (const std::vector<Step>* list : {&steps.forward, &steps.backward}) {
    for (const Step& step : *list) {
      if (step.comm == sim::CommKind::AllGather && step.name == tensor) {
        return step.bytes.value();
      }
    }
  }
  return 0;
}

TEST(EagerKernelsTest, InputsOfFp8ProductsAreGatheredInFp8) {
  Plan plan = fp8_on_hopper(4);
  const double inputs = gathered_bytes(plan, "attention_norm_out");
  const double gradients = gathered_bytes(plan, "mlp_output");
  plan.execution.fp8_gathers = false;
  EXPECT_GT(inputs, 0);
  EXPECT_EQ(gathered_bytes(plan, "attention_norm_out"), 2 * inputs);
  EXPECT_EQ(gathered_bytes(plan, "mlp_output"), 2 * gradients);
  plan.execution.fp8_gathers = true;
  plan.precision = DType::Bf16;
  EXPECT_EQ(gathered_bytes(plan, "attention_norm_out"), 2 * inputs);
}

int gathers_in_backward(const Plan& plan, std::string_view tensor) {
  const BlockCosts costs(plan);
  const BlockSteps steps =
      costs.steps_of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch);
  return static_cast<int>(
      std::count_if(steps.backward.begin(), steps.backward.end(), [&](const Step& step) {
        return step.comm == sim::CommKind::AllGather && step.name == tensor;
      }));
}

TEST(EagerKernelsTest, KeptInputsAreNotGatheredAgain) {
  Plan plan = fp8_on_hopper(4);
  EXPECT_EQ(gathers_in_backward(plan, "mlp_norm_out"), 1);
  plan.execution.regathers_inputs = false;
  EXPECT_EQ(gathers_in_backward(plan, "mlp_norm_out"), 0);
  EXPECT_EQ(gathers_in_backward(plan, "mlp_output"), 1);  // of the gradient
}

// Gathers of what has one scale a row do not stream under their product.
TEST(EagerKernelsTest, GathersOfRowScalesDoNotStream) {
  Plan plan = fp8_on_hopper(4);
  const auto gather_time = [&] {
    const BlockCosts costs(plan);
    for (const Step& step :
         costs.steps_of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch).forward) {
      if (step.comm == sim::CommKind::AllGather && step.name == "mlp_norm_out") {
        return step.time.value();
      }
    }
    return 0.0;
  };
  plan.execution.fp8_gathers = false;
  const double blocking = gather_time();
  plan.execution.stream_tp = true;
  EXPECT_EQ(gather_time(), blocking);
  plan.execution.fp8_gathers = true;
  EXPECT_LT(gather_time(), blocking / 2);
}

TEST(EagerKernelsTest, WhatIsGatheredInFp8IsCastOnce) {
  Plan plan = fp8_on_hopper(4);
  const double shards = time_of(plan, "mlp_up", true);
  plan.execution.fp8_gathers = false;
  const double whole = time_of(plan, "mlp_up", true);
  // Three quarters of 4 bytes an element less.
  EXPECT_GT(whole - shards, 1.5 * stream_bytes(plan) / plan.cluster.gpu.hbm_bandwidth.value());
}

TEST(EagerKernelsTest, WhatIsGatheredInFp8IsTransposedWhole) {
  Plan plan = fp8_on_hopper(4);
  const double shards = time_of(plan, "mlp_up", false);
  plan.execution.fp8_gathers = false;
  const double whole = time_of(plan, "mlp_up", false);
  EXPECT_GT(shards - whole, stream_bytes(plan) / plan.cluster.gpu.hbm_bandwidth.value());
}

TEST(EagerKernelsTest, DynamicScalesTakeAPassMoreAndCopies) {
  Plan plan = fp8_on_hopper(1);
  plan.execution.cast_transposes = plan.execution.norms_cast = false;
  const double known = time_of(plan, "mlp_up", false);
  const double forward = time_of(plan, "mlp_up", true);
  plan.execution.fp8_scaling = Fp8Scaling::Current;
  EXPECT_GT(time_of(plan, "mlp_up", true), forward);  // a pass more finds the scale
  const double backward = time_of(plan, "mlp_up", false);
  // Of the gradients of gate and up, eight times as wide as the stream, 8 bytes an element instead
  // of 4 (each is read three times); 2 of the input's transpose, 2 a weight.
  const double stream = stream_bytes(plan) / plan.cluster.gpu.hbm_bandwidth.value();
  EXPECT_GT(backward - known, 17 * stream);
  EXPECT_LT(backward - known, 26 * stream);
  plan.blocks.front().layout.recompute = Recompute::Products;
  EXPECT_GT(time_of(plan, "mlp_up", false), backward + 1.5 * stream);  // the input is cast again
}

// A persistent product beside a collective that is shorter ends when both would have ended one
// after the other; an older one shares the processors.
TEST(EagerKernelsTest, CollectivesHideNothingBesidePersistentProducts) {
  for (const char* cluster : {"hgx-h100:1", "dgx-a100:1"}) {
    Plan plan = fp8_on_hopper(4);
    plan.precision = DType::Bf16;
    plan.cluster = small_plan(eager_llama_spec(), cluster).cluster;
    plan.profile = small_plan(eager_llama_spec(), cluster).profile;
    plan.execution.overlap_tp = false;
    BlockCosts serial(plan);
    const Seconds apart = to_seconds(
        serial.of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch).backward.time);
    plan.execution.overlap_tp = true;
    BlockCosts overlapped(plan);
    const Seconds together = to_seconds(
        overlapped.of(plan.network.chain[1], plan.layout_of(1), plan.micro_batch).backward.time);
    if (plan.cluster.gpu.architecture == "hopper") {
      EXPECT_NEAR(together / apart, 1, 0.01);
    } else {
      EXPECT_LT(together / apart, 0.98);
    }
  }
}

TEST(EagerKernelsTest, GradientPassesReadTheWholeBuffer) {
  Plan plan = llama_on(1);
  const double none = simulate(plan).breakdown.optimizer.value();
  plan.execution.gradient_passes = 4;
  const Simulation result = simulate(plan);
  const double bytes = 4 * static_cast<double>(result.memory.front().gradients.value());
  const double least = bytes / plan.cluster.gpu.hbm_bandwidth.value();
  EXPECT_GT(result.breakdown.optimizer.value() - none, least);
  EXPECT_LT(result.breakdown.optimizer.value() - none, 2 * least);
}

}  // namespace
}  // namespace orrery::plan
