// SPDX-License-Identifier: Apache-2.0
// The token table that blocks share is on a device once, and devices that hold it add up its
// gradients.
#include "plan/stage/token_table.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "plan/flat/flat.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/validated_pace.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr std::int64_t kTable = 51200LL * 1024;

models::NetworkSpec table_spec(bool tied, models::Family family = models::Family::Gpt) {
  models::NetworkSpec spec = small_spec();
  spec.tied_embeddings = tied;
  spec.family = family;
  if (family == models::Family::T5) {
    spec.position = models::PositionKind::RelativeBias;
    spec.encoder_layers = 8;
  }
  return spec;
}

Plan with_table(const std::string& schedule, bool tied = true,
                models::Family family = models::Family::Gpt,
                const PipelineShape& shape = {.dp = 1, .tp = 1}) {
  PipelineShape pipeline = shape;
  pipeline.chunks = sim::find_schedule(schedule, "test").traits.uses_chunks ? 2 : 1;
  Plan plan = in_pipeline(small_plan(table_spec(tied, family)), schedule, pipeline);
  plan.blocks.front().layout.zero_stage = 0;
  return plan;
}

std::vector<int> holders(const Plan& plan) {
  const std::vector<std::uint16_t> devices = schedule_devices(plan);
  return devices_with_table(plan, devices, stage_contents(plan, devices));
}

std::int64_t parameters_on_all(const Plan& plan) {
  const std::vector<StageMemory> memory = Simulator(plan).memory(plan);
  return std::accumulate(
      memory.begin(), memory.end(), std::int64_t{0},
      [](std::int64_t sum, const StageMemory& one) { return sum + one.parameters.value() / 2; });
}

// So many copies of the network, with so many of the table in all.
std::int64_t parameters_of(const Plan& plan, std::int64_t copies, std::int64_t tables) {
  return copies * (models::num_parameters(plan.network) - kTable) + tables * kTable;
}

TEST(TokenTable, IsOnADeviceOnce) {
  for (const char* schedule : {"zb-v", "v-half", "v-min", "hanayo", "dualpipe-v", "v-zb"}) {
    const Plan plan = with_table(schedule);
    EXPECT_EQ(holders(plan), std::vector<int>({0})) << schedule;
    EXPECT_EQ(parameters_on_all(plan), parameters_of(plan, 1, 1)) << schedule;
  }
  for (const char* schedule : {"1f1b", "interleaved"}) {
    const Plan plan = with_table(schedule);
    EXPECT_EQ(holders(plan), std::vector<int>({0, 3})) << schedule;
    EXPECT_EQ(parameters_on_all(plan), parameters_of(plan, 1, 2)) << schedule;
  }
  for (const char* schedule : {"chimera", "chimera-doubling", "bitpipe", "dualpipe"}) {
    const Plan plan = with_table(schedule);
    EXPECT_EQ(holders(plan), std::vector<int>({0})) << schedule;  // of a copy
    EXPECT_EQ(parameters_on_all(plan), parameters_of(plan, 2, 2)) << schedule;
  }
}

// What is there once is reduced and updated once; nothing is summed with another device.
TEST(TokenTable, TakesNoLongerThanTwo) {
  for (const char* schedule : {"zb-v", "hanayo", "chimera", "bitpipe"}) {
    const Plan one = with_table(schedule, true, models::Family::Gpt, {.dp = 2, .tp = 2});
    const Plan two = with_table(schedule, false, models::Family::Gpt, {.dp = 2, .tp = 2});
    const Simulation shared = simulate(one);
    const Simulation apart = simulate(two);
    EXPECT_LT(shared.iteration_time, apart.iteration_time) << schedule;
    EXPECT_LT(shared.breakdown.optimizer, apart.breakdown.optimizer) << schedule;
  }
}

TEST(TokenTable, IsReplayedOnce) {
  const auto replayed = [](bool tied) {
    return replay_memory(with_table("zb-v", tied)).front().allocated.value();
  };
  const auto counted = [](bool tied) {
    const Plan plan = with_table("zb-v", tied);
    return Simulator(plan).memory(plan).front().allocated().value();
  };
  EXPECT_GT(counted(false) - counted(true), 17 * kTable);
  EXPECT_NEAR(static_cast<double>(replayed(false) - replayed(true)),
              static_cast<double>(counted(false) - counted(true)), 0.1 * kTable);
}

// Both ends of a V are on the first device: the expanded program has no sum, either.
TEST(TokenTable, OfAVIsNotSummedInAFlatProgram) {
  const Plan plan = with_table("zb-v");
  EXPECT_NEAR(simulate_flat(plan).iteration_time.value(), simulate(plan).iteration_time.value(),
              0.02 * simulate(plan).iteration_time.value());
  EXPECT_TRUE(can_validate_afterwards(plan));
  EXPECT_TRUE(can_validate_afterwards(with_table("zb-h1")));
  EXPECT_FALSE(can_validate_afterwards(with_table("zb-h1", true, models::Family::T5)));
}

// The decoder and the head share one on the last of two stages; on four the first stage, that of
// the first decoder layer and the last one have it. With a head of its own the decoder still has a
// use of the encoder's.
TEST(TokenTable, OfADecoderIsThatOfTheEncoder) {
  const auto on = [](int pp, bool tied) {
    return with_table("1f1b", tied, models::Family::T5, {.pp = pp, .dp = 1, .tp = 1});
  };
  EXPECT_EQ(holders(on(2, true)), std::vector<int>({0, 1}));
  EXPECT_EQ(parameters_on_all(on(2, true)), parameters_of(on(2, true), 1, 2));
  EXPECT_EQ(holders(on(4, true)), std::vector<int>({0, 2, 3}));
  EXPECT_EQ(parameters_on_all(on(4, true)), parameters_of(on(4, true), 1, 3));
  EXPECT_EQ(holders(on(4, false)), std::vector<int>({0, 2}));
  EXPECT_EQ(parameters_on_all(on(4, false)), parameters_of(on(4, false), 1, 2));
  const Plan untied = on(4, false);
  BlockCosts costs(untied);
  EXPECT_GT(tied_embedding_time(untied, holders(untied), costs), Seconds());
}

// Beside shards of the table on all devices the decoder has a whole one.
TEST(TokenTable, OfADecoderIsSummedWithTheShards) {
  EXPECT_TRUE(holders(with_table("vocab-1")).empty());
  const Plan plan = with_table("vocab-1", true, models::Family::T5);
  EXPECT_EQ(holders(plan), std::vector<int>({0, 1, 2, 3}));
  EXPECT_NEAR(static_cast<double>(parameters_on_all(plan)),  // shards of the head repeat its norm
              static_cast<double>(parameters_of(plan, 1, 2)), 1e5);
}

Seconds time_of_sum(int pp, int dp, int zero) {
  Plan plan = with_table("1f1b", true, models::Family::Gpt, {.pp = pp, .dp = dp, .tp = 1});
  plan.blocks.front().layout.zero_stage = zero;
  BlockCosts costs(plan);
  return tied_embedding_time(plan, holders(plan), costs);
}

// Megatron-LM sums the whole gradient under ZeRO-1; from ZeRO-2 on a rank has its shard alone.
TEST(TokenTable, IsSummedByShardsWhereGradientsAreSharded) {
  EXPECT_EQ(time_of_sum(2, 8, 0), time_of_sum(2, 8, 1));
  EXPECT_EQ(time_of_sum(2, 8, 2), time_of_sum(2, 8, 3));
  EXPECT_GT(time_of_sum(2, 8, 1).value(), 6 * time_of_sum(2, 8, 2).value());
  EXPECT_LT(time_of_sum(2, 8, 1).value(), 9 * time_of_sum(2, 8, 2).value());
}

// The first and the second half of the chain on a stage each, on tensor ranks of their own number.
Seconds sum_of_unlike(int first, int second) {
  Plan plan = with_table("1f1b", true, models::Family::Gpt, {.pp = 2, .dp = 8 / first, .tp = 1});
  const int half = plan.stage_blocks.front();
  plan.blocks = {{half, {.tp = first}}, {plan.stage_blocks.back(), {.tp = second}}};
  plan.micro_batch = first;
  check_plan(plan, "test");
  BlockCosts costs(plan);
  return tied_embedding_time(plan, holders(plan), costs);
}

// Whichever of them has the larger part of the table is waited for.
TEST(TokenTable, IsSummedAsTheHolderWithMostHasIt) {
  EXPECT_EQ(sum_of_unlike(4, 2), sum_of_unlike(2, 2));
  EXPECT_EQ(sum_of_unlike(2, 4), sum_of_unlike(2, 2));
  EXPECT_LT(sum_of_unlike(4, 4), sum_of_unlike(2, 2));
}

// The ends of four stages of two ranks are six GPUs apart, in one node of eight.
TEST(TokenTable, IsSummedInsideANode) {
  const Plan plan = with_table("1f1b", true, models::Family::Gpt, {.dp = 2, .tp = 1});
  EXPECT_EQ(group_over(plan, {0, 3}).nodes, 1);
  EXPECT_EQ(group_over(plan, {0, 3}).ranks_per_node, 2);
  EXPECT_LT(time_of_sum(4, 2, 1).value(), 0.5 * time_of_sum(2, 8, 1).value());
}

// Whatever the cut: embedding and head are the ends, a decoder begins anywhere.
TEST(TokenTable, MayBeSummedWhereItsUsesAreApart) {
  const auto may = [](const Plan& plan) { return may_sum_tables(plan, schedule_devices(plan)); };
  EXPECT_TRUE(may(with_table("1f1b")));
  EXPECT_FALSE(may(with_table("1f1b", false)));
  EXPECT_FALSE(may(with_table("zb-v")));
  EXPECT_TRUE(may(with_table("zb-v", true, models::Family::T5)));
  EXPECT_TRUE(may(with_table("1f1b", false, models::Family::T5)));
}

// They count it where the plan does.
TEST(TokenTable, IsInBoundsOnceADevice) {
  for (const models::Family family : {models::Family::Gpt, models::Family::T5}) {
    for (const char* schedule : {"1f1b", "zb-v", "hanayo", "chimera", "bitpipe", "vocab-1"}) {
      const Plan plan = with_table(schedule, true, family);
      Simulator simulator(plan);
      const StagePlacement placement = simulator.placement(plan);
      LayoutBounds bounds = simulator.layout_bounds(plan, {0});
      ByteCount fullest;
      for (const StageMemory& memory : simulator.memory(plan)) {
        fullest = std::max(fullest, memory.total());
      }
      const ByteCount least = bounds.memory(plan.stage_blocks, placement).front();
      EXPECT_LE(least, fullest) << schedule;
      EXPECT_LE(bounds.time(plan.stage_blocks, placement, simulator.transfer_times()),
                simulate(plan).iteration_time)
          << schedule;
      EXPECT_LE(simulator.lower_bound(plan), simulate(plan).iteration_time) << schedule;
    }
  }
}

// A head that is cut in another way than the embedding has a copy of its own.
TEST(TokenTable, ThatIsCutInAnotherWayIsAnotherOne) {
  Plan plan = one_stage_plan({.tp = 4});
  plan.micro_batch = 4;
  const auto parameters = [](const Plan& of) {
    return Simulator(of).memory(of).front().parameters.value();
  };
  const auto layers = static_cast<int>(plan.network.chain.size()) - 1;
  BlockPlan whole = plan.blocks.front().layout;
  whole.tp = 1;
  Plan mixed = plan;
  mixed.blocks = {{layers, plan.blocks.front().layout}, {1, whole}};
  check_plan(mixed, "test");
  EXPECT_NEAR(static_cast<double>(parameters(mixed) - parameters(plan)), 2.0 * kTable, 1e5);
}

}  // namespace
}  // namespace orrery::plan
