// SPDX-License-Identifier: Apache-2.0
// Replicas on unlike GPUs that meet in every micro-batch: those that share states or experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/mixed_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::HasSubstr;

Seconds time_of(const MixedPlan& plan) {
  check_mixed_plan(plan, "plan");
  return MixedSimulator(plan).run(plan).iteration_time;
}

std::shared_ptr<MixedMachine> copy_of(const MixedPlan& plan) {
  return std::make_shared<MixedMachine>(*plan.machine);
}

// A second stage that waits for its parameters waits no longer where the first one is faster.
TEST(MixedStep, AFasterFirstStageLeavesNoLongerWait) {
  MixedPlan plan = mixed_plan("hgx-h100:1+dgx-a100:1");
  auto slow = copy_of(plan);
  slow->cluster.pools.push_back({"last", slow->cluster.pools[0].cluster});
  slow->profiles.push_back(slow->profiles[0]);
  slow->cluster.pools[2].cluster.gpu.name = "another";  // in both cases as many chips are like it
  // The gather of the last stage takes longer than the first stage's forward.
  topologies::ScaleUp& links = slow->cluster.pools[2].cluster.node.scale_up;
  links.nccl_bandwidth = BytesPerSecond(1e9);
  links.in_switch_reduction = false;
  auto fast = std::make_shared<MixedMachine>(*slow);
  slow->cluster.pools[0].cluster.gpu = slow->cluster.pools[1].cluster.gpu;
  slow->profiles[0] = slow->profiles[1];
  plan.shape.blocks.front().layout.zero_stage = 2;
  plan.groups = {{.replicas = 1, .micro_batches = 32, .pools = {0, 2}},
                 {.replicas = 1, .micro_batches = 32, .pools = {1, 2}}};
  plan.machine = fast;
  const Seconds of_fast = time_of(plan);
  plan.machine = slow;
  EXPECT_LE(of_fast, time_of(plan));
}

models::NetworkSpec small_mixture() {
  models::NetworkSpec spec = small_spec();
  spec.name = "small mixture";
  spec.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024};
  return spec;
}

// One stage, two replicas of 8 ranks that share experts, one a pool.
MixedPlan sharing_experts(const std::string& cluster) {
  MixedPlan plan = mixed_plan(cluster);
  plan.shape.network = models::build_network(small_mixture(), "test");
  plan.shape.pp = 1;
  plan.shape.stage_blocks = even_stages(plan.shape.network, 1);
  BlockPlan layout{.tp = 8, .ep = 2, .sequence_parallel = true};
  plan.shape.blocks = {{static_cast<int>(plan.shape.network.chain.size()), layout}};
  plan.groups = {{.replicas = 1, .micro_batches = 32, .pools = {0}},
                 {.replicas = 1, .micro_batches = 32, .pools = {1}}};
  return plan;
}

// Two pools of the same nodes, one switch between them, are one cluster.
TEST(MixedStep, ExpertsOverPoolsOfOneKindAreThePlainPlan) {
  MixedPlan plan = sharing_experts("hgx-h100:1+dgx-a100:1");
  auto machine = copy_of(plan);
  machine->cluster.pools[1] = {"second", machine->cluster.pools[0].cluster};
  machine->profiles[0].power.picojoules_per_flop = 0;  // of 8 chips the slowest is not that of 16
  machine->profiles[1] = machine->profiles[0];
  plan.machine = machine;
  plan.shape.profile = machine->profiles[0];
  ASSERT_TRUE(plan.shares_experts_between_pools(0));
  ASSERT_TRUE(plan.runs_in_step());
  Plan plain = plan.shape;
  plain.cluster = topologies::network_across(machine->cluster, {0, 1}, 8);
  const Seconds expected = simulate(plain).iteration_time;
  EXPECT_EQ(time_of(plan), expected);
  machine = copy_of(plan);
  machine->cluster.bandwidth_per_node = BytesPerSecond(5e9);
  plan.machine = machine;
  EXPECT_GT(time_of(plan), expected * 1.1);
}

TEST(MixedStep, ExpertsOverPoolsTakeTheSlowersPace) {
  MixedPlan plan = sharing_experts("hgx-h100:1+dgx-a100:1");
  MixedPlan slow = plan;
  auto machine = copy_of(plan);
  machine->cluster.pools[0].cluster.gpu = machine->cluster.pools[1].cluster.gpu;
  machine->profiles[0] = machine->profiles[1];
  slow.machine = machine;
  const MixedSimulation run = MixedSimulator(plan).run(plan);
  EXPECT_EQ(run.groups[0].makespan, run.groups[1].makespan);
  EXPECT_LE(run.iteration_time, time_of(slow));
  const MixedSimulation interval = MixedSimulator(plan).run(plan, 16);
  EXPECT_LT(interval.interval_low, run.iteration_time);
}

// Where every pool has whole groups of those that share experts, tokens stay on it.
TEST(MixedStep, ExpertsOfWholePoolsDoNotMeet) {
  MixedPlan plan = sharing_experts("hgx-h100:1+dgx-a100:1");
  plan.shape.blocks.front().layout.tp = 4;
  plan.shape.dp = 4;
  plan.groups = {{.replicas = 2, .micro_batches = 20, .pools = {0}},
                 {.replicas = 2, .micro_batches = 12, .pools = {1}}};
  EXPECT_FALSE(plan.shares_experts_between_pools(0));
  const Seconds fast_network = time_of(plan);
  plan.shape.execution.overlap_grad_reduce = false;
  const MixedSimulation run = MixedSimulator(plan).run(plan);
  auto machine = copy_of(plan);
  machine->cluster.bandwidth_per_node = BytesPerSecond(1e9);
  plan.machine = machine;
  const MixedSimulation slow = MixedSimulator(plan).run(plan);
  EXPECT_EQ(run.groups[0].makespan, slow.groups[0].makespan);
  EXPECT_GT(slow.iteration_time, fast_network);
  plan.shape.dp = 3;
  plan.shape.blocks.front().layout.ep = 3;
  plan.groups[0].replicas = 1;
  EXPECT_TRUE(plan.shares_experts_between_pools(0));
}

// Of three groups that share experts each waits for both others, not for its neighbour alone.
TEST(MixedStep, ExpertsOverThreeGroups) {
  MixedPlan plan = sharing_experts("hgx-h100:1+dgx-a100:1");
  auto machine = copy_of(plan);
  machine->cluster.pools.push_back({"third", machine->cluster.pools[1].cluster});
  machine->cluster.pools.back().cluster.num_nodes = 2;
  machine->profiles.push_back(machine->profiles[1]);
  auto as_fast = std::make_shared<MixedMachine>(*machine);
  // The second is as fast as the first in both; the third is in one of them.
  for (const std::size_t pool : {1U, 2U}) {
    as_fast->cluster.pools[pool].cluster.gpu = machine->cluster.pools[0].cluster.gpu;
    as_fast->profiles[pool] = machine->profiles[0];
  }
  machine->cluster.pools[1].cluster.gpu = machine->cluster.pools[0].cluster.gpu;
  machine->profiles[1] = machine->profiles[0];
  const auto makespans = [&](const std::shared_ptr<MixedMachine>& with) {
    plan.machine = with;
    check_mixed_plan(plan, "plan");
    const MixedSimulation run = MixedSimulator(plan).run(plan);
    return std::pair(run.groups[0].makespan, run.groups[1].makespan);
  };
  plan.groups = {{.replicas = 1, .micro_batches = 16, .pools = {0}},
                 {.replicas = 1, .micro_batches = 16, .pools = {1}},
                 {.replicas = 2, .micro_batches = 16, .pools = {2}}};
  plan.shape.dp = 4;
  plan.shape.blocks.front().layout.ep = 4;
  plan.machine = machine;
  EXPECT_TRUE(plan.share_experts(plan.groups[0], plan.groups[2]));
  const auto slow = makespans(machine);
  const auto fast = makespans(as_fast);
  EXPECT_GT(slow.first, fast.first * 11 / 10);
  EXPECT_GT(slow.second, fast.second * 11 / 10);
  EXPECT_EQ(slow.first, slow.second);
  // Two and two: the third group has a whole set of experts.
  plan.shape.blocks.front().layout.ep = 2;
  EXPECT_TRUE(plan.share_experts(plan.groups[0], plan.groups[1]));
  EXPECT_FALSE(plan.share_experts(plan.groups[0], plan.groups[2]));
  EXPECT_FALSE(plan.share_experts(plan.groups[1], plan.groups[2]));
}

// Replicas of one pool in two groups are those of one group, and meet in every micro-batch.
TEST(MixedStep, ExpertsOverGroupsOfOnePool) {
  MixedPlan plan = sharing_experts("hgx-h100:2+dgx-a100:1");
  plan.groups[1].pools = {0};
  EXPECT_FALSE(plan.shares_experts_between_pools(0));
  EXPECT_TRUE(plan.shares_experts_between_groups());
  const Seconds apart = time_of(plan);
  plan.groups = {{.replicas = 2, .micro_batches = 32, .pools = {0}}};
  EXPECT_FALSE(plan.shares_experts_between_groups());
  EXPECT_EQ(apart, time_of(plan));
}

TEST(MixedStep, WhatIsWrongIsSaid) {
  const auto message = [](const std::function<void(MixedPlan&)>& change) -> std::string {
    MixedPlan plan = sharing_experts("hgx-h100:1+dgx-a100:1");
    change(plan);
    try {
      check_mixed_plan(plan, "plan");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([](MixedPlan&) {}), "");
  EXPECT_THAT(message([](MixedPlan& plan) {
                plan.groups[0].micro_batches = 40;
                plan.groups[1].micro_batches = 24;
              }),
              HasSubstr("replicas of several groups that share experts meet in every micro-batch"));
  EXPECT_THAT(message([](MixedPlan& plan) {
                plan = sharing_experts("hgx-h100:2+dgx-a100:1");
                plan.groups[1].pools = {0};
                plan.groups[0].micro_batches = 40;
                plan.groups[1].micro_batches = 24;
              }),
              HasSubstr("replicas of 40 and of 24 micro-batches, but replicas of several groups"));
  EXPECT_THAT(message([](MixedPlan& plan) {
                plan.shape.blocks.front().layout.ep_inside = ExpertsInside::Tensor;
              }),
              HasSubstr("ep_inside = tp, but the replicas of stage 0 are on different pools"));
}

}  // namespace
}  // namespace orrery::plan
