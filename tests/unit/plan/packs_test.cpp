// SPDX-License-Identifier: Apache-2.0
// FlexSP in plans: packs of sequences on groups of their own.
#include "plan/packs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/block/memory_facts.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

using Packs = std::vector<std::vector<Pack>>;

// Eight ranks of 2 GPUs.
Plan packed(const Packs& packs, int zero = 3) {
  models::NetworkSpec spec = small_spec();
  spec.max_positions = 32768;
  Plan plan = small_plan(spec);
  plan.pp = 1;
  plan.dp = 8;
  plan.blocks.front().layout.tp = 2;
  plan.blocks.front().layout.zero_stage = zero;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.schedule = "flexsp";
  plan.packs = packs;
  plan.batch = 0;
  plan.sequence = 1;
  for (const std::vector<Pack>& micro_batch : packs) {
    for (const Pack& pack : micro_batch) {
      plan.batch += static_cast<std::int64_t>(pack.sequences.size());
      for (const std::int64_t tokens : pack.sequences) {
        plan.sequence = std::max(plan.sequence, tokens);
      }
    }
  }
  return plan;
}

// Equal sequences, one a rank or one on all: the plan without packs.
TEST(Packs, OfEqualSequencesAreAnOrdinaryPlan) {
  for (const int group : {1, 4}) {
    const std::vector<Pack> micro_batch(static_cast<std::size_t>(8 / group), Pack{group, {4096}});
    const Plan plan = packed({micro_batch});
    ASSERT_EQ(problem(plan), "");
    Plan ordinary = plan;
    ordinary.schedule = "1f1b";
    ordinary.packs.clear();
    ordinary.dp = 8 / group;
    ordinary.blocks.front().layout.cp = group;
    ordinary.blocks.front().layout.context = ContextParallel::Ulysses;
    ASSERT_EQ(problem(ordinary), "");
    const Simulation one = simulate(plan);
    const Simulation other = simulate(ordinary);
    EXPECT_NEAR(one.iteration_time / other.iteration_time, 1.0, 1e-9);
    EXPECT_EQ(one.memory.front().total(), other.memory.front().total());
    EXPECT_NEAR(one.mfu_fraction, other.mfu_fraction, 1e-9);
    EXPECT_NEAR(one.bubble_fraction, 0.0, 1e-12);
  }
}

// Of the same tokens, those in shorter sequences have less attention, and nothing else less.
TEST(Packs, SequencesSeeThemselvesAlone) {
  const auto time = [](std::vector<std::int64_t> sequences) {
    return simulate(packed({{Pack{8, std::move(sequences)}}})).iteration_time;
  };
  const Seconds whole = time({32768});
  const Seconds halves = time({16384, 16384});
  const Seconds many = time(std::vector<std::int64_t>(32, 1024));
  EXPECT_LT(halves, whole);
  EXPECT_LT(many, halves);
  const Simulation one = simulate(packed({{Pack{8, {32768}}}}));
  const Simulation two = simulate(packed({{Pack{8, {16384, 16384}}}}));
  EXPECT_EQ(one.memory.front().total(), two.memory.front().total());
  EXPECT_GT(one.mfu_fraction * one.iteration_time.value(),
            two.mfu_fraction * two.iteration_time.value());
}

// Where parameters are gathered all ranks wait for the slowest pack of every micro-batch, else for
// the rank with most to do.
TEST(Packs, MeetInEveryMicroBatchWhereStatesAreGathered) {
  const Pack large{4, {8192, 8192}};
  const Pack small{4, {2048}};
  const auto passes = [](const Plan& plan) {
    return simulate(plan, {.record_spans = true}).pipeline.makespan;
  };
  const Plan both = packed({{large, small}});
  const Plan twice = packed({{large, small}, {small, large}});
  EXPECT_EQ(passes(twice), passes(both) + passes(both));
  EXPECT_GT(simulate(both).bubble_fraction, 0.5);
  // The small pack is on the other ranks the second time.
  const Plan alternate = packed({{large, small}, {small, large}}, 1);
  const Seconds apart = simulate(alternate).iteration_time;
  const Seconds together = simulate(packed({{large, small}, {large, small}}, 1)).iteration_time;
  EXPECT_LT(apart, together);
  EXPECT_LT(passes(alternate), passes(twice));
  EXPECT_NEAR(to_seconds(simulate(alternate).end.value().iteration) / apart, 1, 1e-9);
  EXPECT_GT(simulate(twice).bubble_fraction, 0.2);
}

TEST(Packs, FullestRankHoldsMemory) {
  const Simulation run = simulate(packed({{Pack{1, {4096}}, Pack{4, {8192}}}}));
  const Simulation alone = simulate(packed({{Pack{1, {4096}}}}));
  EXPECT_EQ(run.memory.front().total(), alone.memory.front().total());
  EXPECT_EQ(fullest_pack(packed({{Pack{1, {4096}}, Pack{4, {8192}}}})).group, 1);
  EXPECT_EQ(replay_memory(packed({{Pack{1, {4096}}}}), {}, 1).size(), 1U);
}

TEST(Packs, TravelWithThePlan) {
  const Plan plan = packed({{Pack{4, {8192, 100}}, Pack{2, {512}}}, {Pack{8, {4096}}}});
  ASSERT_EQ(problem(plan), "");
  const Plan again = read_plan(to_json(plan), "again");
  EXPECT_EQ(again.packs, plan.packs);
  EXPECT_EQ(simulate(again).iteration_time, simulate(plan).iteration_time);
  EXPECT_EQ(group_sizes_text(plan), "8, 4 and 2");
}

TEST(Packs, SayWhatTheyAskFor) {
  const Packs packs = {{Pack{4, {2048}}, Pack{4, {1024}}}};
  EXPECT_EQ(problem(packed(packs)), "");
  Plan plan = packed({{Pack{3, {2048}}}});
  EXPECT_THAT(problem(plan), HasSubstr("does not divide dp = 8"));
  EXPECT_THAT(problem(packed({{Pack{8, {2048}}, Pack{1, {2048}}}})), HasSubstr("more than dp = 8"));
  plan = packed(packs);
  plan.batch = 7;
  EXPECT_THAT(problem(plan), HasSubstr("set batch to 2"));
  plan = packed(packs);
  plan.sequence = 1000;
  EXPECT_THAT(problem(plan), HasSubstr("set sequence to 2048"));
  plan = packed(packs);
  plan.packs.clear();
  plan.batch = 8;
  EXPECT_THAT(problem(plan), HasSubstr("state \"packs\""));
  plan = packed(packs);
  plan.schedule = "1f1b";
  EXPECT_THAT(problem(plan), HasSubstr("leave out group"));
  plan = packed(packs);
  plan.execution.fused_attention = false;
  EXPECT_THAT(problem(plan), HasSubstr("set fused_attention to true"));
  plan = packed(packs);
  plan.blocks.front().layout.cp = 2;
  plan.dp = 4;
  EXPECT_THAT(problem(plan), HasSubstr("set cp"));
}

}  // namespace
}  // namespace orrery::plan
