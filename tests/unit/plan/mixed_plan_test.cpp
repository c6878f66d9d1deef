// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "plan/mixed/pipeline.hpp"
#include "plan/mixed/plan.hpp"
#include "plan/stages.hpp"
#include "tests/unit/base/testing.hpp"
#include "tests/unit/plan/mixed_fixture.hpp"

namespace orrery::plan {
namespace {

using orrery::testing::message_of;
using ::testing::HasSubstr;

TEST(MixedPlan, OnOneKindOfNodesItIsThePlainSimulation) {
  for (const char* schedule : {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "crosspipe"}) {
    for (const int zero : {0, 1, 2, 3}) {
      const Plan plan = small_plan_of(schedule, zero);
      check_plan(plan, "plan");
      const Simulation plain = simulate(plan);
      MixedSimulator simulator(as_mixed(plan));
      const MixedSimulation mixed = simulator.run(as_mixed(plan));
      EXPECT_EQ(mixed.iteration_time, plain.iteration_time) << schedule << " zero " << zero;
      EXPECT_DOUBLE_EQ(mixed.mfu_fraction, plain.mfu_fraction);
      ASSERT_EQ(mixed.groups.size(), 1U);
      ASSERT_EQ(mixed.groups[0].memory.size(), plain.memory.size());
      for (std::size_t stage = 0; stage < plain.memory.size(); ++stage) {
        EXPECT_EQ(mixed.groups[0].memory[stage].total(), plain.memory[stage].total());
      }
    }
  }
}

TEST(MixedPlan, EveryStageCostsWhatItDoesOnItsGpu) {
  const MixedPlan plan = mixed_plan();
  check_mixed_plan(plan, "plan");
  MixedSimulator simulator(plan);
  const MixedSimulation run = simulator.run(plan);
  MixedPlan swapped = plan;
  swapped.groups.front().pools = {1, 0};
  const MixedSimulation other = simulator.run(swapped);
  for (const std::size_t stage : {0U, 1U}) {
    const double ratio = run.groups[0].busy[stage] / other.groups[0].busy[stage];
    if (stage == 0) {
      EXPECT_LT(ratio, 0.75);  // H100 against A100
    } else {
      EXPECT_GT(ratio, 1.33);
    }
  }
  MixedPlan fast = plan;
  fast.groups.front().pools = {0, 0};
  fast.groups.front().replicas = 1;
  fast.shape.dp = 1;
  fast.groups.front().micro_batches = 64;
  check_mixed_plan(fast, "plan");
  EXPECT_EQ(fast.num_gpus(), 8);
}

TEST(MixedPlan, ASlowNetworkBetweenPoolsIsSeen) {
  MixedPlan plan = mixed_plan();
  plan.shape.execution.overlap_p2p = false;
  const Seconds usual = MixedSimulator(plan).run(plan).iteration_time;
  auto slow = std::make_shared<MixedMachine>(*plan.machine);
  slow->cluster.bandwidth_per_node = BytesPerSecond(1e9);
  plan.machine = slow;
  EXPECT_GT(MixedSimulator(plan).run(plan).iteration_time, usual * 1.05);
}

// Two replicas of one stage each: the batch is shared out by speed.
TEST(MixedPlan, UnevenSharesOfTheBatch) {
  MixedPlan plan = mixed_plan();
  plan.shape.pp = 1;
  plan.shape.stage_blocks = {static_cast<int>(plan.shape.network.chain.size())};
  plan.shape.blocks.front().layout.tp = 8;
  const auto time = [&](std::int64_t of_first) {
    plan.groups = {{.replicas = 1, .micro_batches = of_first, .pools = {0}},
                   {.replicas = 1, .micro_batches = 64 - of_first, .pools = {1}}};
    check_mixed_plan(plan, "plan");
    return MixedSimulator(plan).run(plan).iteration_time;
  };
  EXPECT_LT(time(40), time(32));
  EXPECT_LT(time(40), time(60));
}

// The reduction waits for the slower replica and takes the network between the pools.
TEST(MixedPlan, GradientsOfDifferentGpusAreSummedAtTheSlowersPace) {
  MixedPlan plan = mixed_plan();
  plan.shape.execution.overlap_grad_reduce = false;
  plan.groups = {{.replicas = 1, .micro_batches = 32, .pools = {0, 0}},
                 {.replicas = 1, .micro_batches = 32, .pools = {1, 1}}};
  check_mixed_plan(plan, "plan");
  const MixedSimulation usual = MixedSimulator(plan).run(plan);
  EXPECT_GT(usual.groups[1].makespan, usual.groups[0].makespan);
  EXPECT_GE(usual.iteration_time, usual.groups[1].makespan + usual.reduction);
  auto slow = std::make_shared<MixedMachine>(*plan.machine);
  slow->cluster.bandwidth_per_node = BytesPerSecond(1e9);
  plan.machine = slow;
  const MixedSimulation waiting = MixedSimulator(plan).run(plan);
  EXPECT_GT(waiting.reduction, usual.reduction * 5.0);
}

// Ranks that share gradients or parameters meet in every pass.
TEST(MixedPlan, ReplicasThatShareShardsRunInStep) {
  MixedPlan plan = mixed_plan();
  plan.groups = {{.replicas = 1, .micro_batches = 32, .pools = {0, 0}},
                 {.replicas = 1, .micro_batches = 32, .pools = {1, 1}}};
  const auto run = [&](int zero) {
    plan.shape.blocks.front().layout.zero_stage = zero;
    check_mixed_plan(plan, "plan");
    return MixedSimulator(plan).run(plan);
  };
  for (const char* schedule : {"1f1b", "zb-h1", "crosspipe"}) {
    plan.shape.schedule = schedule;
    for (const int zero : {2, 3}) {
      const MixedSimulation in_step = run(zero);
      EXPECT_EQ(in_step.groups[0].makespan, in_step.groups[1].makespan) << schedule;
      EXPECT_LT(in_step.groups[0].memory[0].gradients, run(1).groups[0].memory[0].gradients);
    }
  }
  // Two groups on one pool are one.
  Plan plain = small_plan();
  plain.pp = 1;
  plain.dp = 4;
  plain.stage_blocks = even_stages(plain.network, 1);
  plain.blocks.front().layout.zero_stage = 3;
  const MixedPlan together = as_mixed(plain);
  MixedPlan halves = together;
  halves.groups.front().replicas = 2;
  halves.groups.push_back(halves.groups.front());
  EXPECT_EQ(MixedSimulator(halves).run(halves).iteration_time,
            MixedSimulator(together).run(together).iteration_time);
  // Every pass of the fast replica waits for the slow one's.
  plan.shape.schedule = "1f1b";
  const MixedSimulation apart = run(1);
  const MixedSimulation in_step = run(2);
  EXPECT_LT(apart.groups[0].makespan, apart.groups[1].makespan * 0.75);
  EXPECT_GE(in_step.groups[0].makespan, apart.groups[1].makespan);
}

// Where gathers and reductions take longer than passes, the fast GPUs wait for them, not the slow
// ones for what the fast ones wait.
TEST(MixedPlan, AFasterPoolNeverSlowsReplicasInStep) {
  MixedPlan plan = mixed_plan();
  auto machine = std::make_shared<MixedMachine>(*plan.machine);
  machine->cluster.bandwidth_per_node = BytesPerSecond(5e9);
  plan.machine = machine;
  MixedPlan slow = plan;
  auto same = std::make_shared<MixedMachine>(*machine);
  same->cluster.pools[0].cluster = same->cluster.pools[1].cluster;
  same->profiles[0] = same->profiles[1];
  slow.machine = same;
  for (const int pp : {1, 2}) {
    for (const int zero : {2, 3}) {
      const auto time = [&](MixedPlan& on) {
        on.shape.pp = pp;
        on.shape.stage_blocks = even_stages(on.shape.network, pp);
        on.shape.blocks.front().layout.tp = 1;
        on.shape.blocks.front().layout.zero_stage = zero;
        on.shape.dp = 16 / pp;
        const auto stages = static_cast<std::size_t>(pp);
        for (const int pool : {0, 1}) {
          on.groups.resize(2);
          on.groups[static_cast<std::size_t>(pool)] = {
              .replicas = 8 / pp, .micro_batches = 4 * pp, .pools = std::vector<int>(stages, pool)};
        }
        check_mixed_plan(on, "plan");
        return MixedSimulator(on).run(on).iteration_time;
      };
      EXPECT_LE(time(plan), time(slow)) << "pp " << pp << " zero " << zero;
    }
  }
}

// The bounds of a group cost no stages of others.
TEST(MixedPlan, BoundsOfAGroupInStepCostItsOwnStages) {
  MixedPlan plan = mixed_plan();
  plan.shape.blocks.front().layout.zero_stage = 2;
  plan.groups = {{.replicas = 1, .micro_batches = 32, .pools = {0, 0}},
                 {.replicas = 1, .micro_batches = 32, .pools = {1, 1}}};
  check_mixed_plan(plan, "plan");
  KindsOfNodes kinds(plan);
  static int costed = 0;
  const CostOfStage count = [](const StageContent& content, const Plan& view, BlockCosts& costs,
                               const Slice& slice) {
    ++costed;
    return add_up_stage(content, view, costs, slice);
  };
  for (const ReplicaGroup& group : plan.groups) {
    MixedPipeline all(plan, group, kinds);
    all.cost_stages(count);
    const int of_all = std::exchange(costed, 0);
    MixedPipeline own(plan, group, kinds);
    own.cost_own(count);
    EXPECT_EQ(std::exchange(costed, 0) * 2, of_all);
    EXPECT_EQ(own.floor(), all.floor());
    EXPECT_EQ(own.optimizer(), all.optimizer());
  }
}

TEST(MixedPlan, EveryPoolHasItsOwnMemory) {
  const MixedPlan plan = mixed_plan("hgx-h100:1+dgx-a100:1", {"dgx-a100.gpu.memory=1 GiB"});
  MixedSimulator simulator(plan);
  const MixedSimulation run = simulator.run(plan);
  ASSERT_TRUE(run.does_not_fit.has_value());
  EXPECT_THAT(*run.does_not_fit, HasSubstr("stage 1"));
  EXPECT_THAT(*run.does_not_fit, HasSubstr("pool \"dgx-a100\""));
  EXPECT_FALSE(simulator.fits(plan).fits);
}

TEST(MixedPlan, ReadsBackAndRepeatsItsTime) {
  const MixedPlan plan = mixed_plan();
  const Json document = to_json(plan);
  ASSERT_TRUE(is_mixed_plan(document));
  const MixedPlan again = read_mixed_plan(document, "plan");
  EXPECT_EQ(to_json(again).dump(), document.dump());
  EXPECT_EQ(MixedSimulator(again).run(again).iteration_time,
            MixedSimulator(plan).run(plan).iteration_time);
  EXPECT_THAT(message_of([&] { read_plan(document, "plan"); }),
              HasSubstr("several kinds of nodes"));
}

TEST(MixedPlan, AnIntervalHoldsTheTime) {
  const MixedPlan plan = mixed_plan();
  const MixedSimulation run = MixedSimulator(plan).run(plan, 32);
  EXPECT_LT(run.interval_low, run.iteration_time);
  EXPECT_GT(run.interval_high, run.iteration_time);
}

TEST(MixedPlan, WhatIsWrongIsSaid) {
  const auto message = [](const std::function<void(MixedPlan&)>& change) {
    MixedPlan plan = mixed_plan();
    change(plan);
    return message_of([&] { check_mixed_plan(plan, "plan"); });
  };
  EXPECT_THAT(message([](MixedPlan& p) { p.groups[0].micro_batches = 31; }),
              HasSubstr("but batch = 64"));
  EXPECT_THAT(message([](MixedPlan& p) { p.groups[0].replicas = 1; }), HasSubstr("but dp = 2"));
  EXPECT_THAT(message([](MixedPlan& p) { p.groups[0].pools = {0}; }), HasSubstr("but pp = 2"));
  EXPECT_THAT(message([](MixedPlan& p) {
                p.groups[0].pools = {0, 0};
              }),
              HasSubstr("needs 16 GPUs of pool \"hgx-h100\", which has 8"));
  EXPECT_THAT(message([](MixedPlan& p) { p.shape.schedule = "chimera"; }),
              HasSubstr("one chain of stages"));
  EXPECT_THAT(message([](MixedPlan& p) { p.shape.execution.post_validation = true; }),
              HasSubstr("leave post_validation out"));
  EXPECT_THAT(message([](MixedPlan& p) { p.shape.schedule = "pipedream"; }),
              HasSubstr("synchronous"));
  EXPECT_THAT(message([](MixedPlan& p) { p.shape.slices = 2; }), HasSubstr("slices"));
  EXPECT_THAT(message([](MixedPlan& p) {
                p.shape.blocks[0].layout.zero_stage = 3;
                p.groups = {{.replicas = 1, .micro_batches = 40, .pools = {0, 0}},
                            {.replicas = 1, .micro_batches = 24, .pools = {1, 1}}};
              }),
              HasSubstr("replicas of 40 and of 24 micro-batches, but ZeRO-2 and 3 meet"));
  EXPECT_THAT(message([](MixedPlan& p) { p.shape.blocks[0].layout.offload.activations = 1.0; }),
              HasSubstr("offloads nothing"));
}

}  // namespace
}  // namespace orrery::plan
