// SPDX-License-Identifier: Apache-2.0
// Tensor-parallel groups over GPUs of several kinds in one node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/mixed/replay.hpp"
#include "tests/unit/plan/mixed_fixture.hpp"
#include "tests/unit/plan/team_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::HasSubstr;

MixedPlan team_plan(const topologies::MixedCluster& cluster, const std::vector<int>& shares) {
  return plan_on(cluster, {0, 0, 1, 1}, shares);
}

std::string problem(const MixedPlan& plan) {
  try {
    check_mixed_plan(plan, "plan.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MixedTeam, OfEqualGpusItIsThePlainPlan) {
  const topologies::MixedCluster cluster = shared_nodes("l40s-8", "l40s-8", 2);
  const MixedPlan team = team_plan(cluster, {});
  Plan plain = team.shape;
  plain.cluster = topologies::load_cluster("l40s-8:1", {"node.gpus=4"});
  plain.profile = costmodel::load_profile("", plain.cluster.gpu);
  MixedSimulator simulator(team);
  const MixedSimulation together = simulator.run(team);
  const Simulation alone = simulate(plain);
  EXPECT_NEAR(together.iteration_time / alone.iteration_time, 1.0, 2e-3);
  EXPECT_EQ(together.groups[0].memory[0].allocated(), alone.memory[0].allocated());
}

TEST(MixedTeam, TheSlowerGpuSetsThePaceUntilItHasLess) {
  const auto time = [](const std::vector<int>& team, const std::vector<int>& shares) {
    const MixedPlan plan = plan_on(shared_nodes("h100-pcie-8", "l40s-8", 4), team, shares);
    return MixedSimulator(plan).run(plan).iteration_time;
  };
  const Seconds even = time({0, 0, 1, 1}, {});
  EXPECT_EQ(even, time({0, 0, 1, 1}, {1, 1, 1, 1}));
  EXPECT_LT(time({0, 0, 1, 1}, {5, 5, 3, 3}), even);
  EXPECT_LT(even, time({0, 0, 1, 1}, {3, 3, 5, 5}));
}

TEST(MixedTeam, EveryGpuHoldsItsOwnShare) {
  const topologies::MixedCluster cluster = shared_nodes("h100-pcie-8", "l40s-8", 4);
  const auto fullest = [&](const std::vector<int>& shares) {
    const MixedPlan plan = team_plan(cluster, shares);
    return MixedSimulator(plan).run(plan).groups[0];
  };
  // The smaller GPU has least left, of its own share.
  const MixedSimulation::Group even = fullest({1, 1, 1, 1});
  const MixedSimulation::Group less = fullest({3, 3, 1, 1});
  EXPECT_EQ(even.pools[0], 1);
  EXPECT_LT(less.memory[0].parameters, even.memory[0].parameters);

  MixedPlan tight = team_plan(cluster, {1, 1, 1, 1});
  auto machine = std::make_shared<MixedMachine>(*tight.machine);
  machine->cluster.pools[1].cluster.gpu.memory = even.memory[0].total() - ByteCount(1);
  tight.machine = machine;
  EXPECT_THAT(MixedSimulator(tight).run(tight).does_not_fit.value_or(""),
              HasSubstr("pool \"slow\""));
  tight.shape.blocks.front().layout.tensor_shares = TensorShares({3, 3, 1, 1});
  EXPECT_TRUE(MixedSimulator(tight).fits(tight).fits);
  EXPECT_FALSE(MixedSimulator(tight).run(tight).does_not_fit.has_value());
}

TEST(MixedTeam, TheReplayTakesEachGpusShare) {
  MixedPlan plan = team_plan(shared_nodes("h100-pcie-8", "l40s-8", 4), {3, 3, 1, 1});
  EXPECT_TRUE(replayed_verdict(plan, ByteCount()).fits);
  auto machine = std::make_shared<MixedMachine>(*plan.machine);
  machine->cluster.pools[0].cluster.gpu.memory = ByteCount(std::int64_t{3} << 29);
  plan.machine = machine;
  EXPECT_THAT(replayed_verdict(plan, ByteCount()).text, HasSubstr("pool \"fast\""));
}

TEST(MixedTeam, StagesBesideTeamsAndReadBack) {
  // Two replicas: the first stage on a group over both kinds, the second on the slow one alone.
  MixedPlan plan =
      plan_on(shared_nodes("h100-pcie-8", "l40s-8", 12), {0, 0, 1, 1}, {5, 5, 3, 3}, 2);
  plan.groups[0].pools[1] = 1;
  plan.groups[0].teams[1] = {};
  check_mixed_plan(plan, "plan");
  EXPECT_EQ(plan.gpus_used(), (std::vector<std::int64_t>{4, 12}));
  const MixedPlan back = read_mixed_plan(to_json(plan), "plan.json");
  EXPECT_EQ(back.groups, plan.groups);
  const MixedSimulation once = MixedSimulator(plan).run(plan, 20);
  EXPECT_EQ(once.iteration_time, MixedSimulator(back).run(back).iteration_time);
  EXPECT_LE(once.interval_low, once.iteration_time);
  EXPECT_GE(once.interval_high, once.iteration_time);
  EXPECT_THAT(replicas_text(plan), HasSubstr("(2 fast + 2 slow) x 1, slow x 1"));
}

// Every rank shares its states with those of the other replicas on GPUs of its kind.
TEST(MixedTeam, StatesAreShardedOverReplicas) {
  MixedPlan plan = plan_on(shared_nodes("h100-pcie-8", "l40s-8", 4), {0, 1}, {5, 3});
  plan.shape.dp = plan.groups[0].replicas = 4;
  plan.groups[0].micro_batches = 2;
  const auto of = [&](int zero) {
    plan.shape.blocks.front().layout.zero_stage = zero;
    EXPECT_EQ(problem(plan), "");
    EXPECT_TRUE(replayed_verdict(plan, ByteCount()).fits);
    return MixedSimulator(plan).run(plan);
  };
  const MixedSimulation whole = of(1);
  const MixedSimulation gradients = of(2);
  const MixedSimulation all = of(3);
  const auto memory = [](const MixedSimulation& run) -> const StageMemory& {
    return run.groups[0].memory[0];
  };
  EXPECT_LT(memory(gradients).gradients * 3, memory(whole).gradients);
  EXPECT_LT(memory(all).parameters * 3, memory(whole).parameters);
  EXPECT_GT(all.iteration_time, whole.iteration_time);
}

// Four replicas of a GPU of each kind, in pairs that share experts.
MixedPlan sharing_experts(const topologies::MixedCluster& cluster, const std::vector<int>& shares) {
  models::NetworkSpec mixture = small_spec();
  mixture.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 1024};
  MixedPlan plan = plan_on(cluster, {0, 1}, shares);
  plan.shape.network = models::build_network(mixture, "test");
  plan.shape.dp = plan.groups[0].replicas = 4;
  plan.groups[0].micro_batches = 2;
  plan.shape.blocks.front().layout.ep = 2;
  return plan;
}

TEST(MixedTeam, ExpertsOverTeamsOfEqualGpusAreThePlainPlan) {
  const MixedPlan team = sharing_experts(shared_nodes("l40s-8", "l40s-8", 4), {});
  ASSERT_EQ(problem(team), "");
  Plan plain = team.shape;
  plain.cluster = topologies::load_cluster("l40s-8:1");
  plain.profile = costmodel::load_profile("", plain.cluster.gpu);
  const MixedSimulation together = MixedSimulator(team).run(team);
  const Simulation alone = simulate(plain);
  EXPECT_NEAR(together.iteration_time / alone.iteration_time, 1.0, 2e-3);
  EXPECT_EQ(together.groups[0].memory[0].allocated(), alone.memory[0].allocated());
}

// No rank waits for one of another kind at the exchange of tokens, but at the next collective of
// its group: the slower GPU sets the pace until it has less.
TEST(MixedTeam, ExpertsOverTeamsTakeTheSlowersPace) {
  const auto run = [](const std::vector<int>& shares, int ep) {
    MixedPlan plan = sharing_experts(shared_nodes("h100-pcie-8", "l40s-8", 4), shares);
    plan.shape.blocks.front().layout.ep = ep;
    EXPECT_TRUE(replayed_verdict(plan, ByteCount()).fits);
    return MixedSimulator(plan).run(plan).groups[0];
  };
  const MixedSimulation::Group even = run({1, 1}, 2);
  const MixedSimulation::Group uneven = run({5, 3}, 2);
  EXPECT_LT(uneven.makespan, even.makespan);
  EXPECT_GT(even.makespan, run({1, 1}, 1).makespan);
  // The smaller GPU has least left, of its own share; half of the experts are elsewhere.
  EXPECT_LT(uneven.memory[0].parameters, even.memory[0].parameters);
  EXPECT_LT(even.memory[0].parameters, run({1, 1}, 1).memory[0].parameters);
}

// Those replicas in two groups: two on a GPU of each kind, two on GPUs of one, each sharing experts
// with one of the other group.
MixedPlan beside_a_team(const topologies::MixedCluster& cluster, const std::vector<int>& shares,
                        int pool) {
  MixedPlan plan = sharing_experts(cluster, shares);
  plan.shape.blocks.front().layout.ep = 4;
  plan.groups.push_back(plan.groups.front());
  plan.groups[0].replicas = plan.groups[1].replicas = 2;
  plan.groups[1].pools = {pool};
  plan.groups[1].teams = {};
  return plan;
}

TEST(MixedTeam, ExpertsOverATeamAndAPoolOfEqualGpusAreThePlainPlan) {
  const MixedPlan plan = beside_a_team(shared_nodes("l40s-8", "l40s-8", 8), {}, 1);
  ASSERT_EQ(problem(plan), "");
  EXPECT_TRUE(plan.shares_experts_between_pools(0));
  EXPECT_TRUE(replayed_verdict(plan, ByteCount()).fits);
  Plan plain = plan.shape;
  plain.cluster = topologies::load_cluster("l40s-8:1", {"node.gpus=16"});
  plain.profile = costmodel::load_profile("", plain.cluster.gpu);
  const MixedSimulation together = MixedSimulator(plan).run(plan);
  const Simulation alone = simulate(plain);
  EXPECT_NEAR(together.iteration_time / alone.iteration_time, 1.0, 2e-3);
  for (const MixedSimulation::Group& group : together.groups) {
    EXPECT_EQ(group.memory[0].allocated(), alone.memory[0].allocated());
  }
}

// Whoever has the slower GPU sets the pace of all, in each layer.
TEST(MixedTeam, ExpertsOverATeamAndAPoolTakeTheSlowersPace) {
  const topologies::MixedCluster cluster = shared_nodes("h100-pcie-8", "l40s-8", 8);
  // Of replicas on a team and on `pool`; `gpus`: the GPUs of all pools are those of one.
  const auto makespan = [&](int pool, std::optional<std::size_t> gpus = {}) {
    MixedPlan plan = beside_a_team(cluster, {1, 1}, pool);
    if (gpus) {
      auto machine = std::make_shared<MixedMachine>(*plan.machine);
      for (std::size_t other = 0; other < 2; ++other) {
        machine->cluster.pools[other].cluster.gpu = cluster.pools[*gpus].cluster.gpu;
        machine->profiles[other] = plan.machine->profiles[*gpus];
      }
      plan.machine = machine;
    }
    const MixedSimulation run = MixedSimulator(plan).run(plan);
    EXPECT_EQ(run.groups[0].makespan, run.groups[1].makespan);
    return run.groups[0].makespan;
  };
  for (const int pool : {0, 1}) {
    EXPECT_NEAR(makespan(pool) / makespan(pool, 1), 1.0, 0.02);
    EXPECT_LT(makespan(pool, 0), makespan(pool) * 0.95);
  }
}

// A pool in nodes of its own beside a team: of each node as many GPUs take part as it has ranks.
TEST(MixedTeam, ATeamBesideAPoolElsewhere) {
  topologies::MixedCluster cluster = shared_nodes("h100-pcie-8", "l40s-8", 4);
  cluster.pools.push_back({"far", topologies::load_cluster("dgx-a100:1")});
  MixedPlan plan = plan_on(cluster, {0, 1}, {5, 3});
  plan.shape.dp = 2;
  plan.groups[0].micro_batches = 4;
  plan.groups.push_back({.replicas = 1, .micro_batches = 4, .pools = {2}});
  ASSERT_EQ(problem(plan), "");
  const MixedSimulation run = MixedSimulator(plan).run(plan);
  EXPECT_GT(run.reduction, Seconds(0.0));
  EXPECT_LT(run.reduction, run.iteration_time);
}

TEST(MixedTeam, WhatIsWrongIsSaid) {
  const topologies::MixedCluster cluster = shared_nodes("h100-pcie-8", "l40s-8", 4);
  EXPECT_EQ(problem(team_plan(cluster, {})), "");
  topologies::MixedCluster apart = cluster;
  apart.same_nodes.clear();
  EXPECT_THAT(problem(team_plan(apart, {})), HasSubstr("share no node"));
  MixedPlan plan = team_plan(cluster, {});
  plan.groups[0].teams[0] = {0, 1};
  EXPECT_THAT(problem(plan), HasSubstr("the pools of 2 tensor-parallel ranks, but tp = 4"));
  EXPECT_THAT(problem(team_plan(shared_nodes("h100-pcie-8", "l40s-8", 1), {})),
              HasSubstr("2 ranks on pool \"fast\", with 1 GPUs a node"));
  plan = team_plan(cluster, {1, 1});
  EXPECT_THAT(problem(plan), HasSubstr("2 entries, but tp = 4"));
  plan = beside_a_team(shared_nodes("h100-pcie-8", "l40s-8", 8), {5, 3}, 1);
  EXPECT_EQ(problem(plan), "");
  plan.shape.blocks.front().layout.expert_tp = 1;
  plan.shape.blocks.front().layout.ep = 4;
  EXPECT_THAT(problem(plan), HasSubstr("stage 0 has tensor-parallel ranks on different pools"));
  plan = beside_a_team(shared_nodes("h100-pcie-8", "l40s-8", 8), {5, 3}, 1);
  plan.groups[0].micro_batches = 3;
  plan.groups[1].micro_batches = 1;
  EXPECT_THAT(problem(plan), HasSubstr("replicas of several groups that share experts meet"));
}

}  // namespace
}  // namespace orrery::plan
