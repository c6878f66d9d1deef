// SPDX-License-Identifier: Apache-2.0
// Schedules that search for their lists with what the passes of a plan cost.
#include <gtest/gtest.h>

#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

// Four stages, the last one with the head of a large vocabulary.
Plan four_stages(const std::string& schedule, double cap = 0, int chunks = 1) {
  Plan plan = in_pipeline(small_plan(), schedule, {.chunks = chunks});
  plan.activation_cap = cap;
  check_plan(plan, "test");
  return plan;
}

Seconds pass_time(const Plan& plan) { return Simulator(plan).list_bound(plan); }

TEST(FlexPipe, IsNoSlowerThanWhatItChoosesFrom) {
  const Seconds best = pass_time(four_stages("flexpipe"));
  EXPECT_LE(best, pass_time(four_stages("1f1b")));
  EXPECT_LE(best, pass_time(four_stages("zb-h1")));
  const Seconds with_room = pass_time(four_stages("flexpipe", 8));
  EXPECT_LE(with_room, best);
  EXPECT_LE(with_room, pass_time(four_stages("zb-h2")));
  EXPECT_LE(pass_time(four_stages("flexpipe", 16)), pass_time(four_stages("gpipe")));
}

TEST(FlexPipe, KeepsWithinItsCap) {
  const auto held = [](const Plan& plan) {
    return Simulator(plan).memory(plan).front().activations.value();
  };
  const std::int64_t one = held(four_stages("1f1b")) / 4;
  EXPECT_LE(held(four_stages("flexpipe", 2)), one * 2);
  EXPECT_LE(held(four_stages("flexpipe", 3)), one * 3);
}

// Its lists with chunks are chosen for the passes that the plan costs, not for what follows them:
// on a V the ends share a tied table.
TEST(FlexPipe, PlacesChunksItself) {
  const Seconds chunked = simulate(four_stages("flexpipe", 0, 2)).iteration_time;
  EXPECT_LE(chunked, simulate(four_stages("flexpipe")).iteration_time);
  EXPECT_LE(pass_time(four_stages("flexpipe", 0, 2)), pass_time(four_stages("v-half", 0, 2)));
}

// The body repeats as fast as the busiest stage, which the head makes the last one; what is left is
// filling and draining.
TEST(Tessel, RepeatsAsFastAsTheBusiestStage) {
  const Plan plan = four_stages("tessel");
  Simulator simulator(plan);
  const Simulation result = simulator.run(plan);
  Plan longer = plan;
  longer.batch *= 4;  // 64 micro-batches
  const Simulation more = Simulator(longer).run(longer);
  const Seconds period = (more.iteration_time - result.iteration_time) * (1.0 / 48);
  Seconds busiest;
  for (const sim::DeviceUse& use : result.pipeline.devices) {
    busiest = std::max(busiest, Seconds(static_cast<double>(use.busy.ps) * 1e-12 / 16));
  }
  EXPECT_GE(period, busiest * 0.99);  // which also has a reduction, once
  EXPECT_LE(period, busiest * 1.1);   // the search takes times to a sixteenth of the longest
  EXPECT_LE(result.iteration_time, simulate(four_stages("gpipe")).iteration_time * 1.02);
}

TEST(Tessel, TakesTwoChunksAsAV) {
  const Plan plan = four_stages("tessel", 0, 2);
  Simulator simulator(plan);
  const Simulation result = simulator.run(plan);
  EXPECT_EQ(simulator.order(plan).device_of, (std::vector<std::uint16_t>{0, 1, 2, 3, 3, 2, 1, 0}));
  EXPECT_LT(result.iteration_time, simulate(four_stages("1f1b")).iteration_time * 1.05);
}

// One length of sequence: 1f1b over whole sequences, seq1f1b over slices.
TEST(InfiniPipe, IsSeq1f1bForSequencesOfOneLength) {
  EXPECT_EQ(simulate(four_stages("infinipipe")).iteration_time,
            simulate(four_stages("1f1b")).iteration_time);
  Plan sliced = four_stages("infinipipe");
  sliced.slices = 8;
  check_plan(sliced, "test");
  Plan usual = sliced;
  usual.schedule = "seq1f1b";
  const Simulation a = simulate(sliced);
  const Simulation b = simulate(usual);
  EXPECT_EQ(a.iteration_time, b.iteration_time);
  EXPECT_EQ(a.memory.front().activations, b.memory.front().activations);
  EXPECT_LT(a.memory.front().activations, simulate(four_stages("1f1b")).memory.front().activations);
}

}  // namespace
}  // namespace orrery::plan
