// SPDX-License-Identifier: Apache-2.0
// Plans whose devices update without meeting at the gradient norm.
#include "plan/stage/validated_pace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plan/document/idle_fields.hpp"
#include "plan/flat/flat.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/token_table.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

// Four stages, 16 micro-batches.
Plan zero_bubble(const std::string& schedule, int dp = 1, bool tied = false) {
  models::NetworkSpec spec = small_spec();
  spec.tied_embeddings = tied;
  const int chunks = sim::find_schedule(schedule, "test").traits.uses_chunks ? 2 : 1;
  Plan plan = in_pipeline(small_plan(spec), schedule, {.dp = dp, .chunks = chunks});
  plan.execution.post_validation = true;
  return plan;
}

Seconds with_a_meeting(Plan plan) {
  plan.execution.post_validation = false;
  return simulate(plan).iteration_time;
}

// An iteration of the plan takes what the busiest device computes at least, its update included,
// and no more than the way from the first start to the last end.
TEST(ValidatedPace, IterationsOverlap) {
  for (const char* schedule : {"zb-h1", "zb-h2", "zb-1p", "zb-2p", "zb-v"}) {
    for (const int dp : {1, 2}) {
      const Plan plan = zero_bubble(schedule, dp);
      ASSERT_TRUE(validates_afterwards(plan)) << schedule;
      const Simulation simulation = simulate(plan);
      // The meeting itself takes no time; here the state of the norm travels from stage to stage.
      const Seconds meeting = with_a_meeting(plan);
      EXPECT_LE(simulation.iteration_time.value(), meeting.value() + 100e-6) << schedule;
      if (std::string(schedule) == "zb-2p" || std::string(schedule) == "zb-h2") {
        EXPECT_LT(simulation.iteration_time, meeting) << schedule;
      }
      SimTime busy;
      for (const sim::DeviceUse& use : simulation.pipeline.devices) {
        busy = std::max(busy, use.busy);
      }
      EXPECT_GE(simulation.iteration_time, to_seconds(busy)) << schedule;
      EXPECT_GE(simulation.breakdown.bubble, Seconds());
      EXPECT_LE(Simulator(plan).list_bound(plan), simulation.iteration_time) << schedule;
    }
  }
}

// Passes of the head's stage decide: it runs one iteration after the other, and its update between.
TEST(ValidatedPace, IsThatOfTheSlowestStage) {
  Plan plan = zero_bubble("zb-h2");
  plan.stage_blocks = {2, 2, 2, 4};  // the head and three layers last
  const Simulation simulation = simulate(plan);
  BlockCosts costs(plan);
  const StageCost last = add_up_stage(stage_contents(plan).back(), plan, costs);
  const SimTime update = to_sim_time(optimizer_time(plan, {last}, {0}, costs));
  const sim::DeviceUse& use = simulation.pipeline.devices.back();
  EXPECT_NEAR(simulation.iteration_time.value(),
              to_seconds(use.last_end - use.first_start + update).value(), 1e-6);
}

// The run that is drawn is that of the pace; kernels would meet at the norm.
TEST(ValidatedPace, KeepsTheRunOfSeveralIterations) {
  const Plan plan = zero_bubble("zb-h2");
  EXPECT_FALSE(simulate(plan).iterations);
  const Simulation drawn = simulate(plan, {.record_spans = true});
  ASSERT_TRUE(drawn.iterations);
  EXPECT_FALSE(drawn.end);
  EXPECT_EQ(to_seconds(drawn.iterations->period), drawn.iteration_time);
  const sim::PipelineResult& run = drawn.iterations->pipeline;
  const auto device = static_cast<std::size_t>(plan.pp - 1);
  const std::size_t passes = drawn.pipeline.spans[device].size();
  std::vector<SimTime> updates;  // their ends
  std::size_t others = 0;
  for (const sim::PassSpan& span : run.spans[device]) {
    if (span.pass.kind == sim::PassKind::Optimizer) {
      updates.push_back(span.end);
    } else if (span.pass.virtual_stage < plan.pp) {  // not of the state of the norm
      ++others;
    }
  }
  ASSERT_EQ(updates.size(), 4U);
  EXPECT_EQ(others, 4 * passes);
  EXPECT_NEAR(to_seconds(updates[3] - updates[2]).value(), drawn.iteration_time.value(), 1e-9);
  EXPECT_TRUE(why_not_flat(plan));
  Plan meets = plan;
  meets.execution.post_validation = false;
  EXPECT_FALSE(why_not_flat(meets));
  const Simulation met = simulate(meets, {.record_spans = true});
  EXPECT_FALSE(met.iterations);
  EXPECT_EQ(to_seconds(met.end.value().iteration), met.iteration_time);
}

TEST(ValidatedPace, NeedsAZeroBubbleSchedule) {
  const Plan other = zero_bubble("1f1b", 2);
  EXPECT_EQ(simulate(other).iteration_time, with_a_meeting(other));
  ASSERT_EQ(idle_fields(other).size(), 1U);
  EXPECT_EQ(idle_fields(other).front().field, "execution.post_validation");
  EXPECT_TRUE(idle_fields(zero_bubble("zb-h1", 2)).empty());
  EXPECT_TRUE(idle_fields(zero_bubble("zb-h1", 2, true)).empty());
}

// The sum of a shared table runs beside what is left of an iteration: it adds its own time at most,
// and does not bring the meeting of all devices back.
TEST(ValidatedPace, TiedTablesAreSummedBesideWeightGradients) {
  for (const char* schedule : {"zb-h1", "zb-h2", "zb-1p", "zb-2p"}) {
    const Plan tied = zero_bubble(schedule, 1, true);
    ASSERT_TRUE(validates_afterwards(tied)) << schedule;
    BlockCosts costs(tied);
    const Seconds sum = tied_embedding_time(tied, {0, tied.pp - 1}, costs);
    ASSERT_GT(sum, Seconds());
    const Seconds untied = simulate(zero_bubble(schedule)).iteration_time;
    const Seconds time = simulate(tied).iteration_time;
    EXPECT_GE(time.value(), untied.value() - sum.value()) << schedule;  // less to update
    EXPECT_LE(time, untied + sum) << schedule;
    EXPECT_LE(time.value(), with_a_meeting(tied).value() + 100e-6) << schedule;
    EXPECT_LE(Simulator(tied).list_bound(tied), time) << schedule;
  }
}

}  // namespace
}  // namespace orrery::plan
