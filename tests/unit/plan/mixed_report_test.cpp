// SPDX-License-Identifier: Apache-2.0
// What a simulated plan of a mixed cluster says beside its time.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "plan/mixed/simulate.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/mixed_fixture.hpp"

namespace orrery::plan {
namespace {

// Two pools of one node each, alike: stage 0 is on the first, stage 1 on the second, where they are
// on the plain cluster of two such nodes.
MixedPlan on_two_equal_pools(const Plan& plan) {
  auto machine = std::make_shared<MixedMachine>();
  machine->cluster.name = "two";
  topologies::Cluster node = topologies::load_cluster("dgx-a100:1");
  machine->cluster.pools = {{"a", node}, {"b", node}};
  machine->profiles = {plan.profile, plan.profile};
  MixedPlan mixed;
  mixed.shape = plan;
  mixed.shape.cluster = node;
  mixed.machine = std::move(machine);
  mixed.groups = {
      {.replicas = plan.dp, .micro_batches = plan.num_micro_batches(), .pools = {0, 1}}};
  return mixed;
}

void expect_same_report(const Simulation& mixed, const Simulation& plain) {
  EXPECT_EQ(mixed.iteration_time, plain.iteration_time);
  EXPECT_DOUBLE_EQ(mixed.tokens_per_second_per_gpu, plain.tokens_per_second_per_gpu);
  EXPECT_DOUBLE_EQ(mixed.mfu_fraction, plain.mfu_fraction);
  EXPECT_DOUBLE_EQ(mixed.hfu_fraction, plain.hfu_fraction);
  EXPECT_DOUBLE_EQ(mixed.bubble_fraction, plain.bubble_fraction);
  EXPECT_EQ(mixed.breakdown.compute, plain.breakdown.compute);
  EXPECT_EQ(mixed.breakdown.recompute, plain.breakdown.recompute);
  EXPECT_EQ(mixed.breakdown.bubble, plain.breakdown.bubble);
  EXPECT_EQ(mixed.breakdown.optimizer, plain.breakdown.optimizer);
  EXPECT_EQ(mixed.breakdown.exposed_communication, plain.breakdown.exposed_communication);
  ASSERT_EQ(mixed.memory.size(), plain.memory.size());
  for (std::size_t stage = 0; stage < plain.memory.size(); ++stage) {
    const StageMemory& mine = mixed.memory[stage];
    const StageMemory& theirs = plain.memory[stage];
    EXPECT_EQ(mine.parameters, theirs.parameters);
    EXPECT_EQ(mine.gradients, theirs.gradients);
    EXPECT_EQ(mine.optimizer, theirs.optimizer);
    EXPECT_EQ(mine.activations, theirs.activations);
    EXPECT_EQ(mine.total(), theirs.total());
    EXPECT_EQ(mine.peak_owner, theirs.peak_owner);
  }
}

TEST(MixedReport, OfTwoEqualPoolsIsThePlainOne) {
  for (const char* schedule : {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"}) {
    for (const int zero : {0, 1, 2, 3}) {
      Plan plan = small_plan_of(schedule, zero);
      plan.blocks.front().layout.recompute = zero == 1 ? Recompute::Full : Recompute::None;
      SCOPED_TRACE(plan.schedule + ", zero " + std::to_string(zero));
      const MixedPlan mixed = on_two_equal_pools(plan);
      check_mixed_plan(mixed, "plan");
      const MixedSimulation run = MixedSimulator(mixed).run(mixed);
      const Simulation plain = simulate(plan);
      EXPECT_GT(plain.breakdown.exposed_communication.at("tp"), Seconds());
      expect_same_report(run, plain);
    }
  }
}

// With replicas of unlike speed too: the busiest device waits for the last replica, in the bubble
// where each runs alone, in its passes where they run in step.
TEST(MixedReport, PartsSumToTheIteration) {
  MixedPlan plan = mixed_plan();
  plan.groups = {{.replicas = 1, .micro_batches = 32, .pools = {0, 0}},
                 {.replicas = 1, .micro_batches = 32, .pools = {1, 1}}};
  for (const int zero : {1, 3}) {
    plan.shape.blocks.front().layout.zero_stage = zero;
    check_mixed_plan(plan, "plan");
    const MixedSimulation run = MixedSimulator(plan).run(plan);
    EXPECT_EQ(run.busiest_group, 1U);  // of the A100
    const TimeBreakdown& parts = run.breakdown;
    Seconds sum = parts.compute + parts.bubble + parts.optimizer;
    for (const auto& [kind, time] : parts.exposed_communication) {
      sum += time;
    }
    EXPECT_LE(sum.value(), run.iteration_time.value() * 1.001) << "zero " << zero;
    EXPECT_GE(sum.value(), run.iteration_time.value() * 0.97) << "zero " << zero;
    EXPECT_GT(run.hfu_fraction, 0.0);
    EXPECT_GE(run.hfu_fraction, run.mfu_fraction);
  }
}

// Of each stage the GPU with least left, here the smaller one.
TEST(MixedReport, MemoryIsThatOfTheFullestReplica) {
  MixedPlan plan = mixed_plan("hgx-h100:1+dgx-a100:1", {"dgx-a100.gpu.memory=40 GiB"});
  plan.groups = {{.replicas = 1, .micro_batches = 40, .pools = {0, 0}},
                 {.replicas = 1, .micro_batches = 24, .pools = {1, 1}}};
  plan.shape.schedule = "gpipe";  // more micro-batches, more activations
  check_mixed_plan(plan, "plan");
  const MixedSimulation run = MixedSimulator(plan).run(plan);
  ASSERT_EQ(run.memory.size(), 2U);
  for (const std::size_t stage : {0U, 1U}) {
    EXPECT_GT(run.groups[0].memory[stage].activations, run.groups[1].memory[stage].activations);
    EXPECT_EQ(run.memory[stage].activations, run.groups[1].memory[stage].activations);
  }
}

}  // namespace
}  // namespace orrery::plan
