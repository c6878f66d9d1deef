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

BlockCost cost_at(const Plan& plan, std::size_t position) {
  BlockCosts costs(plan);
  return costs.of(plan.network.chain[position], plan.layout_of(static_cast<int>(position)),
                  plan.micro_batch);
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

// 12 bytes an element forward instead of 4, 22 backward instead of 6.
TEST(EagerKernelsTest, NormsOfWideCopiesCastThemAndTheirGradients) {
  Plan plan = llama_on(1);
  const double fused = time_of(plan, "attention_norm", true);
  const double backward = time_of(plan, "attention_norm", false);
  plan.execution.fp32_norms = true;
  EXPECT_NEAR(time_of(plan, "attention_norm", true) / fused, 3.0, 0.4);
  EXPECT_NEAR(time_of(plan, "attention_norm", false) / backward, 22.0 / 6, 0.4);
}

// With the addition in front of the second norm, but not where whole layers run again.
TEST(EagerKernelsTest, NormsThatRunAgainDoSoInTheBackward) {
  Plan plan = llama_on(1);
  plan.execution.fp32_norms = true;
  const auto more = [&](std::string_view name) {
    plan.execution.reruns_norms = false;
    const double once = time_of(plan, name, false);
    plan.execution.reruns_norms = true;
    return time_of(plan, name, false) - once;
  };
  for (const char* name : {"attention_norm", "mlp_norm", "attention_residual"}) {
    EXPECT_NEAR(more(name), time_of(plan, name, true), 1e-9) << name;
  }
  EXPECT_EQ(more("mlp_residual"), 0.0);
  plan.blocks.front().layout.recompute = Recompute::Full;
  EXPECT_EQ(more("attention_norm"), 0.0);
}

// The copy in fp32, unless the norm is to make it again.
TEST(EagerKernelsTest, NormsOfWideCopiesKeepThem) {
  Plan plan = llama_on(1);
  const auto saved = [&] { return static_cast<double>(cost_at(plan, 1).saved.value()); };
  const double usual = saved();
  plan.execution.fp32_norms = true;
  EXPECT_NEAR(saved() - usual, 2 * stream_bytes(plan), 1.0);  // two norms, 2 bytes more each
  plan.execution.reruns_norms = true;
  EXPECT_NEAR(saved() - usual, 0.0, 1.0);
}

// Of 3 + 1 + 4 + 1 widths, unless the cast of the gradient to fp8 takes them on its way.
TEST(EagerKernelsTest, GradientsOfAllBiasesAreSums) {
  const auto more = [](DType precision) {
    Plan plan = one_replica(small_spec(), {}, "hgx-h100:1");
    plan.precision = precision;
    const BlockCost epilogue = cost_at(plan, 1);
    plan.execution.bias_gradients_apart = true;
    const BlockCost sums = cost_at(plan, 1);
    EXPECT_EQ(sums.forward.time, epilogue.forward.time);
    EXPECT_EQ(sums.backward.launches - epilogue.backward.launches,
              precision == DType::Bf16 ? 4 : 0);
    return (sums.backward.compute - epilogue.backward.compute).value();
  };
  const Plan plan = one_replica(small_spec(), {}, "hgx-h100:1");
  const double least = 9 * stream_bytes(plan) / plan.cluster.gpu.hbm_bandwidth.value();
  EXPECT_GT(more(DType::Bf16), least);
  EXPECT_LT(more(DType::Bf16), 1.5 * least);
  EXPECT_EQ(more(DType::Fp8), 0.0);
}

// 38 - 22 bytes a logit forward, 14 - 6 backward.
TEST(EagerKernelsTest, CompiledLossMovesWhatItsFourKernelsDo) {
  Plan plan = one_replica(small_spec(), {});
  const std::size_t head = plan.network.chain.size() - 1;
  const BlockCost passes = cost_at(plan, head);
  plan.execution.compiled_loss = true;
  const BlockCost compiled = cost_at(plan, head);
  const double logits = static_cast<double>(plan.micro_batch * plan.sequence) *
                        static_cast<double>(plan.network.spec.vocab);
  const auto expect_less = [&](PassCost BlockCost::*pass, double bytes) {
    const double least = bytes * logits / plan.cluster.gpu.hbm_bandwidth.value();
    const double less = ((passes.*pass).compute - (compiled.*pass).compute).value();
    EXPECT_GT(less, least);
    EXPECT_LT(less, 1.6 * least);
  };
  expect_less(&BlockCost::forward, 16);
  expect_less(&BlockCost::backward, 8);
  EXPECT_EQ(compiled.forward.launches, passes.forward.launches - 3);
  plan.execution.fused_cross_entropy = true;
  EXPECT_LT(cost_at(plan, head).forward.compute, compiled.forward.compute);
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
  plan.execution.eager_ring = true;
  const double part = 0.25 * stream_bytes(plan) / plan.cluster.gpu.hbm_bandwidth.value();
  const double compiled = time_of(plan, "attention", true);
  plan.execution.fused_kernels = false;
  // 38 bytes an element of the output apart, 9.5 in one kernel, three times.
  EXPECT_GT(time_of(plan, "attention", true), compiled + 3 * 14.25 * part);
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

// Forward a product of tokens x rows with the table, in the backward one of its transpose with the
// gradients; both read what a kernel has written first.
TEST(EagerKernelsTest, LookupsByProductsComputeAsMuchAsTheHead) {
  Plan plan = one_replica(small_spec(), {});
  const BlockCost gathered = cost_at(plan, 0);
  plan.execution.lookup_products = true;
  const BlockCost products = cost_at(plan, 0);
  const auto rows = static_cast<double>(plan.network.spec.vocab);
  const double at_peak = rows * stream_bytes(plan) / plan.cluster.gpu.peak_of(DType::Bf16).value();
  const auto check = [&](const PassCost& more, const PassCost& less) {
    EXPECT_DOUBLE_EQ((more.flops - less.flops).value(), rows * stream_bytes(plan));
    EXPECT_GT(more.compute.value(), at_peak);
    EXPECT_LT(more.compute.value(), 3 * at_peak);
  };
  check(products.forward, gathered.forward);
  check(products.backward, gathered.backward);
}

}  // namespace
}  // namespace orrery::plan
