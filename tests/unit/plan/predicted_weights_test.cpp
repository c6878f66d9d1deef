// SPDX-License-Identifier: Apache-2.0
// XPipe in plans: what a prediction of the weights costs and where it cannot be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "plan/simulation/simulate.hpp"
#include "plan/stage/step_end.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

// Four stages, 16 micro-batches an update.
Plan predicting(int dp) {
  Plan plan = in_pipeline(small_plan(), "xpipe", {.dp = dp});
  plan.blocks.front().layout.zero_stage = dp > 1 ? 1 : 0;
  return plan;
}

// The master copy and two moments are read in fp32, the copy that passes use is written in 16 bits.
TEST(PredictedWeights, AreAPassOverParametersAndMoments) {
  const Plan plan = predicting(1);
  BlockCosts costs(plan);
  const StageCost stage = add_up_stage(stage_contents(plan).front(), plan, costs);
  ASSERT_GT(stage.states.local_parameters, 0);
  const Bytes bytes(static_cast<double>(stage.states.local_parameters) * (4 + 8 + 2));
  EXPECT_EQ(prediction_time(plan, stage, costs),
            to_sim_time(costs.device().memory_bound(bytes, costmodel::MemoryKernel::Optimizer)));
}

// A rank predicts its shard and gathers the rest.
TEST(PredictedWeights, AreGatheredWhereStatesAreSharded) {
  const Plan plan = predicting(2);
  BlockCosts costs(plan);
  const StageCost stage = simulate_stage(stage_contents(plan).front(), plan, costs);
  ASSERT_GT(stage.gather_total, SimTime{});
  const Bytes bytes(static_cast<double>(stage.states.local_parameters) * 14);
  EXPECT_EQ(prediction_time(plan, stage, costs),
            to_sim_time(costs.device().memory_bound(bytes, costmodel::MemoryKernel::Optimizer)) +
                stage.gather_total);
}

// Beside 1F1B without flush that waits for no update either, and predicts nothing.
TEST(PredictedWeights, TakeTimeOnceAnIteration) {
  Plan plan = predicting(1);
  plan.stage_blocks = {4, 3, 2, 1};  // the head alone is on the last stage, which never predicts
  Plan other = plan;
  other.schedule = "pipedream-2bw";
  const Simulation with = simulate(plan);
  const Simulation without = simulate(other);
  EXPECT_EQ(with.weight_versions, 2);
  EXPECT_EQ(with.memory.front().parameters, without.memory.front().parameters);
  BlockCosts costs(plan);
  std::vector<Seconds> predictions;
  for (const StageContent& content : stage_contents(plan)) {
    predictions.push_back(
        to_seconds(prediction_time(plan, add_up_stage(content, plan, costs), costs)));
  }
  predictions.pop_back();  // the last stage has no update to predict
  const Seconds all = std::accumulate(predictions.begin(), predictions.end(), Seconds());
  EXPECT_GT(with.iteration_time, without.iteration_time);
  EXPECT_LE(with.iteration_time, without.iteration_time + all * 1.01);
}

TEST(PredictedWeights, NeedTheMomentsOnTheDevice) {
  Plan plan = predicting(2);
  plan.blocks.front().layout.offload.optimizer = Tier::Host;
  EXPECT_THAT(problem(plan), HasSubstr("do not offload the optimizer"));
}

}  // namespace
}  // namespace orrery::plan
