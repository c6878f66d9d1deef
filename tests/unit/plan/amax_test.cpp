// SPDX-License-Identifier: Apache-2.0
// What a pass in fp8 waits for with delayed scaling: the largest magnitudes of all ranks.
#include "plan/stage/amax.hpp"

#include <gtest/gtest.h>

#include "plan/simulation/simulate.hpp"
#include "plan/stage/split_backward.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// tp 4, dp 2 and pp 2 on two nodes: a stage has 8 ranks.
Plan fp8_plan(const models::NetworkSpec& spec = small_spec()) {
  Plan plan = small_plan(spec, "hgx-h100:2");
  plan.precision = DType::Fp8;
  check_plan(plan, "test");
  return plan;
}

AmaxReductions reductions(const Plan& plan) {
  BlockCosts costs(plan);
  return amax_reductions(stage_contents(plan).front(), plan, costs);
}

StageCost cost_of_first_stage(const Plan& plan) {
  BlockCosts costs(plan);
  return simulate_stage(stage_contents(plan).front(), plan, costs);
}

Seconds all_reduce(const Plan& plan, double bytes, int ranks) {
  const auto group = costmodel::make_group(ranks, 1, plan.cluster.node.gpus);
  return BlockCosts(plan).collectives().time(sim::CommKind::AllReduce, Bytes(bytes), group);
}

// Four products a layer: of queries, keys and values, of the context, up and down.
TEST(AmaxTest, TheLargestMagnitudesOfAllProductsTravelTogether) {
  const Plan plan = fp8_plan();
  const int layers = plan.stage_blocks.front() - 1;
  EXPECT_EQ(reductions(plan).forward, all_reduce(plan, 12.0 * 4 * layers, 8));
  EXPECT_EQ(reductions(plan).backward, all_reduce(plan, 8.0 * 4 * layers, 8));
}

TEST(AmaxTest, EveryPassOfAStageWaitsForThem) {
  Plan plan = fp8_plan();
  const AmaxReductions amax = reductions(plan);
  const StageCost with = cost_of_first_stage(plan);
  plan.execution.amax_ranks = AmaxRanks::None;
  const StageCost without = cost_of_first_stage(plan);
  EXPECT_GT(amax.forward.value(), 1e-6);
  EXPECT_EQ((with.forward - without.forward).ps, to_sim_time(amax.forward).ps);
  EXPECT_EQ((with.backward - without.backward).ps, to_sim_time(amax.backward).ps);
  EXPECT_EQ((with.gathered_forward - without.gathered_forward).ps, to_sim_time(amax.forward).ps);
  // Reductions of gradients end when they ended.
  EXPECT_EQ((with.last_backward + with.reduce_tail).ps,
            std::max(without.last_backward + without.reduce_tail, with.last_backward).ps);
}

TEST(AmaxTest, RanksOfTheModelAloneWhereThePlanSaysSo) {
  Plan plan = fp8_plan();
  const int layers = plan.stage_blocks.front() - 1;
  plan.execution.amax_ranks = AmaxRanks::Model;
  EXPECT_EQ(reductions(plan).forward, all_reduce(plan, 12.0 * 4 * layers, 4));
  plan.execution.amax_ranks = AmaxRanks::None;
  EXPECT_TRUE(reductions(plan).axes.empty());
}

TEST(AmaxTest, OtherScalesAndPrecisionsReduceNothing) {
  Plan plan = fp8_plan();
  for (const Fp8Scaling scaling : {Fp8Scaling::Current, Fp8Scaling::Blocks}) {
    plan.execution.fp8_scaling = scaling;
    EXPECT_TRUE(reductions(plan).axes.empty());
  }
  plan.execution.fp8_scaling = Fp8Scaling::Delayed;
  plan.precision = DType::Bf16;
  EXPECT_TRUE(reductions(plan).axes.empty());
}

// Two products of each expert of this rank.
TEST(AmaxTest, ExpertsCountByThemselves) {
  models::NetworkSpec spec = small_spec();
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024};
  Plan plan = fp8_plan(spec);
  plan.blocks.front().layout.ep = 2;
  BlockCosts costs(plan);
  const int others = 2;  // of attention; the router's is in 16 bits
  EXPECT_EQ(costs.of(plan.network.chain[1], plan.layout_of(1), 1).quantised.count, others + 2 * 4);
}

// All chunks of a device have theirs in one buffer.
TEST(AmaxTest, ChunksOfADeviceTravelTogether) {
  Plan plan = fp8_plan();
  plan.schedule = "interleaved";
  plan.chunks = 2;
  plan.stage_blocks = {3, 2, 2, 3};
  EXPECT_EQ(reductions(plan).forward, all_reduce(plan, 12.0 * 4 * 2 * 2, 8));
}

TEST(AmaxTest, OfACutBackwardTheInputGradientsWait) {
  Plan plan = fp8_plan();
  plan.schedule = "zb-h1";
  const auto times = [&] {
    BlockCosts costs(plan);
    SplitBackwards splits;
    const StageContent content = stage_contents(plan).front();
    return splits.times(content, plan, costs, simulate_stage(content, plan, costs));
  };
  const SplitTimes with = times();
  const SimTime backward = to_sim_time(reductions(plan).backward);
  plan.execution.amax_ranks = AmaxRanks::None;
  const SplitTimes without = times();
  EXPECT_EQ((with.input_grad - without.input_grad).ps, backward.ps);
  EXPECT_EQ(with.weight_grad.ps, without.weight_grad.ps);
}

// Frozen layers have no gradients.
TEST(AmaxTest, FrozenLayersReduceOnceAMicroBatch) {
  Plan plan = fp8_plan();
  for (models::Block& block : plan.network.blocks) {
    block.frozen = block.kind == models::BlockKind::Layer;
  }
  const int layers = plan.stage_blocks.front() - 1;
  EXPECT_EQ(reductions(plan).forward, all_reduce(plan, 12.0 * 4 * layers, 8));
  EXPECT_EQ(reductions(plan).backward, Seconds());
}

TEST(AmaxTest, AreReportedByThemselves) {
  Plan plan = fp8_plan();
  const AmaxReductions amax = reductions(plan);
  const auto with = simulate(plan).breakdown.exposed_communication;
  plan.execution.amax_ranks = AmaxRanks::None;
  const auto without = simulate(plan).breakdown.exposed_communication;
  EXPECT_NEAR(
      with.at("amax").value(),
      ((amax.forward + amax.backward) * static_cast<double>(plan.num_micro_batches())).value(),
      1e-9);
  EXPECT_FALSE(without.contains("amax"));
  EXPECT_EQ(with.size(), without.size() + 1);
}

// With 32 micro-batches and two stages 33 forwards and backwards follow one another.
TEST(AmaxTest, AnIterationHasOneForEveryPassInTurn) {
  Plan plan = fp8_plan();
  plan.execution.overlap_grad_reduce = plan.execution.overlap_param_gather = false;
  const AmaxReductions amax = reductions(plan);
  const double with = simulate(plan).iteration_time.value();
  plan.execution.amax_ranks = AmaxRanks::None;
  const double without = simulate(plan).iteration_time.value();
  const double passes = static_cast<double>(plan.num_micro_batches() + plan.pp - 1);
  EXPECT_NEAR(with - without, passes * (amax.forward + amax.backward).value(), 1e-6);
}

}  // namespace
}  // namespace orrery::plan
