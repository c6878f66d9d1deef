// SPDX-License-Identifier: Apache-2.0
// Casts around products in fp8: who runs them, in how many kernels and at which rate.
#include "plan/block/quantised_casts.hpp"

#include <gtest/gtest.h>

#include "plan/block/cost.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using costmodel::MemoryKernel;

Plan fp8_llama(int tensor_ranks = 1, const std::string& cluster = "hgx-h100:1") {
  models::NetworkSpec spec = small_spec();
  spec.norm = models::NormKind::RmsNorm;
  spec.activation = models::Activation::SwiGlu;
  spec.attention_bias = spec.attention_output_bias = spec.mlp_bias = false;
  Plan plan =
      one_replica(spec, {.tp = tensor_ranks, .sequence_parallel = tensor_ranks > 1}, cluster);
  plan.precision = DType::Fp8;
  check_plan(plan, "test");
  return plan;
}

double seconds(const Plan& plan, double bytes, MemoryKernel kernel) {
  return costmodel::DeviceModel(plan.cluster.gpu, plan.profile)
      .memory_bound(Bytes(bytes), kernel)
      .value();
}

double token_count(const Plan& plan) {
  return static_cast<double>(plan.micro_batch * plan.sequence);
}
double width(const Plan& plan) { return static_cast<double>(plan.network.spec.ffn_hidden); }
double stream(const Plan& plan) {
  return token_count(plan) * static_cast<double>(plan.network.spec.hidden);
}

// 51.7 us for 4,096 x 4,096 on H100 (NVIDIA/TransformerEngine pull request 101).
TEST(QuantisedCastsTest, TheKernelOfBothTakesWhatItWasTimedAt) {
  const Plan plan = fp8_llama();
  EXPECT_NEAR(seconds(plan, 4.0 * 4096 * 4096, MemoryKernel::CastTranspose), 51.7e-6, 1e-6);
}

TEST(QuantisedCastsTest, ProfilesWithoutItsRateTakeThatOfCasts) {
  Plan plan = fp8_llama();
  plan.profile.memory.fraction[static_cast<std::size_t>(MemoryKernel::CastTranspose)] = 0;
  EXPECT_EQ(seconds(plan, 1e8, MemoryKernel::CastTranspose),
            seconds(plan, 1e8, MemoryKernel::Cast));
  EXPECT_EQ(costmodel::to_json(plan.profile).find("memory")->find("cast_transpose"), nullptr);
}

TEST(QuantisedCastsTest, OneKernelCastsAndTransposes) {
  Plan plan = fp8_llama();
  const double bytes = 4 * token_count(plan) * width(plan);
  const double own = time_of(plan, "mlp_down", true);
  plan.execution.cast_transposes = false;
  EXPECT_NEAR(
      own - time_of(plan, "mlp_down", true),
      seconds(plan, bytes, MemoryKernel::CastTranspose) - seconds(plan, bytes, MemoryKernel::Cast),
      1e-9);
}

TEST(QuantisedCastsTest, NormsWriteWhatProductsAloneRead) {
  Plan plan = fp8_llama();
  const double norm = time_of(plan, "mlp_norm", true);
  const double product = time_of(plan, "mlp_up", true);
  const double backward = time_of(plan, "mlp_up", false);
  plan.execution.norms_cast = false;
  const double rate = plan.cluster.gpu.hbm_bandwidth.value();
  EXPECT_GT(time_of(plan, "mlp_norm", true) - norm, stream(plan) / rate);
  EXPECT_NEAR(time_of(plan, "mlp_up", true) - product,
              seconds(plan, 4 * stream(plan), MemoryKernel::CastTranspose), 1e-9);
  EXPECT_NEAR(backward - time_of(plan, "mlp_up", false),
              seconds(plan, 2 * stream(plan), MemoryKernel::Cast), 1e-9);
}

// What nobody gathers is not gathered in 16 bits.
TEST(QuantisedCastsTest, GathersDecideOverNormsOnlyWhereTheyAre) {
  for (const int tp : {1, 2}) {
    Plan plan = fp8_llama(tp);
    const double norm = time_of(plan, "mlp_norm", true);
    plan.execution.fp8_gathers = false;
    if (tp == 1) {
      EXPECT_EQ(time_of(plan, "mlp_norm", true), norm);
    } else {
      EXPECT_GT(time_of(plan, "mlp_norm", true), norm);
    }
  }
}

TEST(QuantisedCastsTest, WithSequenceParallelismInputsAreTransposedInTheBackward) {
  Plan plan = fp8_llama(2);
  const double inputs = token_count(plan) * width(plan) / 2;
  const double forward = time_of(plan, "mlp_down", true);
  plan.execution.fp8_gathers = false;
  EXPECT_NEAR(time_of(plan, "mlp_down", true) - forward,
              seconds(plan, 4 * inputs, MemoryKernel::CastTranspose) -
                  seconds(plan, 3 * inputs, MemoryKernel::Cast),
              1e-9);
}

// Of two copies of every token that experts get, those which the ranks that cut an expert gather
// have been cast by half of them each; what experts are spread over gathers nothing. Products of
// Blackwell read the cast in any layout.
TEST(QuantisedCastsTest, ExpertsCastWhatTheyDoNotGather) {
  for (const int cut : {1, 2, 4}) {
    Plan plan = fp8_llama(4, "dgx-b200:1");
    plan.network.spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024};
    plan.network = models::build_network(plan.network.spec, "test");
    BlockPlan& layout = plan.blocks.front().layout;
    layout.ep = 4 / cut;
    layout.expert_tp = cut;
    const double copies = 2 * stream(plan) * cut / 4;
    const double gathered = time_of(plan, "experts_up", true);
    ASSERT_GT(gathered, 0);
    plan.execution.fp8_gathers = false;
    EXPECT_NEAR(time_of(plan, "experts_up", true) - gathered,
                seconds(plan, 3 * copies, MemoryKernel::Cast) -
                    seconds(plan, 3 * copies / cut, MemoryKernel::Cast),
                1e-9)
        << cut;
  }
}

TEST(QuantisedCastsTest, WeightsAreCastForEveryMicroBatchWhereThePlanSaysSo) {
  Plan plan = fp8_llama();
  const double weights = width(plan) * static_cast<double>(plan.network.spec.hidden);
  const double forward = time_of(plan, "mlp_down", true);
  plan.execution.casts_weights = true;
  EXPECT_NEAR(time_of(plan, "mlp_down", true) - forward,
              seconds(plan, 4 * weights, MemoryKernel::CastTranspose), 1e-9);
}

// Two bytes find the scale, three cast.
TEST(QuantisedCastsTest, TorchaoCastsWeightsByPlainKernels) {
  Plan plan = fp8_llama();
  plan.execution.fp8_scaling = Fp8Scaling::Current;
  plan.execution.cast_transposes = false;
  const double weights = width(plan) * static_cast<double>(plan.network.spec.hidden);
  const double forward = time_of(plan, "mlp_down", true);
  plan.execution.casts_weights = true;
  EXPECT_NEAR(time_of(plan, "mlp_down", true) - forward,
              seconds(plan, 5 * weights, MemoryKernel::Cast), 1e-9);
}

// The largest value of each tensor, found by a kernel that reads 2 bytes an element.
TEST(QuantisedCastsTest, CurrentScalesTakeAPassMore) {
  Plan plan = fp8_llama();
  const double bytes = 2 * token_count(plan) * width(plan);
  const double forward = time_of(plan, "mlp_down", true);
  plan.execution.fp8_scaling = Fp8Scaling::Current;
  EXPECT_NEAR(time_of(plan, "mlp_down", true) - forward, seconds(plan, bytes, MemoryKernel::Cast),
              1e-9);
}

// Blackwell's products read tensors of one scale in either layout; blocks lie along the sum.
// Apart from casts: against a GPU whose sums have all bits, everything else alike. Without a power
// limit, which slows products down by about as much.
TEST(QuantisedCastsTest, ForwardProductsWithScalesOfBlocksPromoteTheirSums) {
  const auto lost_to_sums = [](Fp8Scaling scaling, const std::string& cluster) {
    Plan plan = fp8_llama(1, cluster);
    plan.execution.fp8_scaling = scaling;
    plan.cluster.gpu.power_watts = 0;
    const double own = time_of(plan, "mlp_up", true);
    plan.cluster.gpu.short_fp8_sums = false;
    return own - time_of(plan, "mlp_up", true);
  };
  Plan plan = fp8_llama();
  plan.cluster.gpu.power_watts = 0;
  const costmodel::DeviceModel gpu(plan.cluster.gpu, plan.profile, costmodel::Load::Sustained);
  costmodel::GemmShape shape{.m = plan.micro_batch * plan.sequence,
                             .n = 2 * plan.network.spec.ffn_hidden,
                             .k = plan.network.spec.hidden,
                             .dtype = DType::Fp8};
  const double fast = gpu.gemm(shape).value();
  shape.precise_sums = true;
  const double lost = gpu.gemm(shape).value() - fast;
  EXPECT_GT(lost, 0.05 * fast);
  EXPECT_NEAR(lost_to_sums(Fp8Scaling::Blocks, "hgx-h100:1"), lost, 1e-9);
  EXPECT_EQ(lost_to_sums(Fp8Scaling::Delayed, "hgx-h100:1"), 0);
  EXPECT_EQ(lost_to_sums(Fp8Scaling::Blocks, "hgx-b200:1"), 0);
}

TEST(QuantisedCastsTest, ProductsThatReadAnyLayoutNeedNoTransposes) {
  Plan plan = fp8_llama(1, "hgx-b200:1");
  plan.execution.norms_cast = false;
  const double inputs = token_count(plan) * width(plan);
  const double forward = time_of(plan, "mlp_down", true);
  const double backward = time_of(plan, "mlp_down", false);
  plan.execution.fp8_scaling = Fp8Scaling::Blocks;
  EXPECT_NEAR(time_of(plan, "mlp_down", true) - forward,
              seconds(plan, 4 * inputs, MemoryKernel::CastTranspose) -
                  seconds(plan, 3 * inputs, MemoryKernel::Cast),
              1e-9);
  EXPECT_NEAR(time_of(plan, "mlp_down", false) - backward,
              seconds(plan, 4 * stream(plan), MemoryKernel::CastTranspose) -
                  seconds(plan, 3 * stream(plan), MemoryKernel::Cast),
              1e-9);
}

TEST(QuantisedCastsTest, NothingThatNormsWroteIsTransposedForThem) {
  Plan plan = fp8_llama(1, "hgx-b200:1");
  const double backward = time_of(plan, "mlp_up", false);
  plan.cluster.gpu.any_fp8_layout = false;
  EXPECT_GT(time_of(plan, "mlp_up", false) - backward,
            seconds(plan, 2 * stream(plan), MemoryKernel::Cast) - 1e-9);
}

}  // namespace
}  // namespace orrery::plan
