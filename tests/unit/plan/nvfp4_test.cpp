// SPDX-License-Identifier: Apache-2.0
// Products in nvfp4: their rate, the kernels that cast, what is gathered, and how sure it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "plan/block/states.hpp"
#include "plan/exporter.hpp"
#include "plan/importer.hpp"
#include "plan/simulation/interval.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/pass_costs.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using costmodel::DeviceModel;
using costmodel::GemmShape;
using costmodel::MemoryKernel;

Plan nvfp4_plan() {
  Plan plan = small_plan(small_spec(), "hgx-b200:2");
  plan.precision = DType::Nvfp4;
  check_plan(plan, "test");
  return plan;
}

// Of each format a share of its peak: 9,000 and 4,500 TFLOP/s.
TEST(Nvfp4, LargeProductsAreLessThanTwiceAsFastAsThoseInFp8) {
  Plan plan = nvfp4_plan();
  const auto faster = [&] {
    const DeviceModel burst(plan.cluster.gpu, plan.profile, costmodel::Load::Burst);
    GemmShape shape{.m = 16384, .n = 16384, .k = 16384, .dtype = DType::Fp8};
    const Seconds fp8 = burst.gemm(shape);
    shape.dtype = DType::Nvfp4;
    return fp8 / burst.gemm(shape);
  };
  EXPECT_NEAR(faster(), 1.9, 0.1);
  costmodel::GemmOfDType& gemm = plan.profile.gemm;
  gemm[static_cast<std::size_t>(DType::Nvfp4)] = gemm[static_cast<std::size_t>(DType::Fp8)];
  EXPECT_NEAR(faster(), 2.0, 0.05);  // where nothing else is known
}

// fp8_attention: the forward of attention alone, at the rate of fp8.
TEST(Nvfp4, AttentionInFp8IsAsFastAsItsTable) {
  models::NetworkSpec spec = small_spec();
  spec.sequence = 32768;  // beyond what the host takes to launch it
  Plan plan = small_plan(spec, "hgx-b200:2");
  plan.sequence = spec.sequence;
  plan.precision = DType::Nvfp4;
  const auto usual = simulate(plan).iteration_time;
  plan.execution.fp8_attention = true;
  EXPECT_LT(simulate(plan).iteration_time, usual);
  const auto forward = [&] {
    const BlockCosts costs(plan);
    const BlockContext context = costs.block_context(plan.network.chain[1], plan.layout_of(1), 1);
    Seconds time;
    for (const Step& step : lower_block(context).forward) {
      time += step.cost_class == CostClass::Attention ? step.time : Seconds();
    }
    return time;
  };
  costmodel::AttentionShape shape;
  shape.batch = 1;
  shape.heads = spec.heads / plan.layout_of(1).tp;
  shape.kv_heads = spec.kv_heads / plan.layout_of(1).tp;
  shape.q_len = shape.kv_len = spec.sequence;
  shape.head_dim = shape.value_head_dim = spec.head_dim;
  shape.causal = true;
  shape.dtype = DType::Fp8;
  EXPECT_EQ(forward(), BlockCosts(plan).device().attention_forward(shape));
  plan.profile.attention.fp8_forward_rate = 0;  // not measured
  EXPECT_EQ(simulate(plan).iteration_time, usual);
}

TEST(Nvfp4, OtherGpusHaveNoRate) {
  Plan plan = small_plan(small_spec(), "hgx-h100:2");
  plan.precision = DType::Nvfp4;
  try {
    (void)simulate(plan);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("nvfp4"));
  }
}

TEST(Nvfp4, LogitsStayIn16Bits) {
  const Plan plan = nvfp4_plan();
  BlockCosts costs(plan);
  const StageContent content = stage_contents(plan).back();  // layers and the head
  EXPECT_GT(costs.of(content.front().block, content.front().layout, 1).quantised.count, 0);
  EXPECT_EQ(costs.of(content.back().block, content.back().layout, 1).quantised.count, 0);
}

// The largest value is found in a pass of 2 bytes an element; then one kernel reads 2 and writes
// rows and columns of 0.5625 with their scales.
constexpr double kWeightsOfLayer = 12.0 * 1024 * 1024 / 4;  // of a layer on one of 4 tensor ranks

SimTime weight_casts(const Plan& plan) {
  BlockCosts costs(plan);
  return simulate_stage(stage_contents(plan).front(), plan, costs).weight_casts;
}

TEST(Nvfp4, WeightsAreCastOnceAStepInRowsAndColumns) {
  Plan plan = nvfp4_plan();
  const int layers = plan.stage_blocks.front() - 1;
  EXPECT_EQ(weight_casts(plan).ps,
            (to_sim_time(memory_bound(plan, 2 * kWeightsOfLayer, MemoryKernel::Cast) +
                         memory_bound(plan, 3.125 * kWeightsOfLayer, MemoryKernel::CastTranspose)) *
             layers)
                .ps);
  plan.execution.quantised_gather = true;  // in rows, of which the columns are made
  EXPECT_EQ(
      weight_casts(plan).ps,
      (to_sim_time(memory_bound(plan, 1.125 * kWeightsOfLayer, MemoryKernel::Cast)) * layers).ps);
}

double gathered_bytes(const Plan& plan) {
  BlockCosts costs(plan);
  const StagePiece piece = stage_contents(plan).back().front();
  const BlockCost& block = costs.of(piece.block, piece.layout, 1);
  double bytes = 0;
  for (const StateCollective& each :
       state_collectives(block, piece.layout, mesh_of(piece.layout, data_ranks_of(piece, plan)),
                         plan.execution, plan.precision, false, 8)) {
    bytes += each.use == StateCollective::Use::Gather ? each.bytes : 0;
  }
  return bytes;
}

// The rest of a layer, norms and biases, in 16 bits.
TEST(Nvfp4, TwoQuantisedParametersAreGatheredInAByte) {
  Plan plan = nvfp4_plan();
  const double sixteen = gathered_bytes(plan);
  EXPECT_GT(sixteen, 0);
  plan.execution.quantised_gather = true;
  EXPECT_EQ(gathered_bytes(plan), sixteen - 1.5 * kWeightsOfLayer);
  plan.precision = DType::Fp8;
  EXPECT_EQ(gathered_bytes(plan), sixteen - kWeightsOfLayer);
}

// Its formula stands alone, so that it is less sure than products with sets; wider still is what
// nothing is known of.
TEST(Nvfp4, IntervalsAreWider) {
  costmodel::Profile profile = nvfp4_plan().profile;
  const auto& rows = profile.kernels.accuracy;
  const auto own = std::find_if(rows.begin(), rows.end(), [](const auto& row) {
    return row.kernel == "gemm nvfp4 tn burst";
  });
  ASSERT_NE(own, rows.end());
  EXPECT_EQ(spreads_of(profile, DType::Nvfp4).gemm, std::hypot(own->p90 / 1.645, 0.04));
  EXPECT_GT(own->p90 / 1.645, profile.spread.gemm);
  EXPECT_EQ(costmodel::read_profile(costmodel::to_json(profile), "test", nvfp4_plan().cluster.gpu),
            profile);
  profile.gemm[static_cast<std::size_t>(DType::Nvfp4)] =
      profile.gemm[static_cast<std::size_t>(DType::Fp8)];
  EXPECT_EQ(spreads_of(profile, DType::Nvfp4).gemm,
            spreads_of(profile, DType::Fp8).gemm * costmodel::kSpreadWidening);
}

TEST(Nvfp4, ExportsToMegatronAlone) {
  Plan plan = nvfp4_plan();
  plan.execution.quantised_gather = true;
  const std::string text = find_exporter("megatron").write(plan);
  EXPECT_THAT(text, testing::HasSubstr("--bf16"));
  EXPECT_THAT(text, testing::HasSubstr("--fp4-format e2m1"));
  EXPECT_THAT(text, testing::HasSubstr("--fp4-recipe nvfp4"));
  const Plan read = find_importer("megatron").read(text, "run.sh", plan.cluster, &plan.network);
  EXPECT_EQ(read.precision, DType::Nvfp4);
  EXPECT_TRUE(read.execution.quantised_gather);
  EXPECT_THROW((void)find_exporter("deepspeed").write(plan), Error);
  EXPECT_THROW((void)find_exporter("torchtitan").write(plan), Error);
}

}  // namespace
}  // namespace orrery::plan
