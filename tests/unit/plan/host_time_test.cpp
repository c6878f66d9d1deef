// SPDX-License-Identifier: Apache-2.0
// What the host takes to issue a pass, beside what the device takes to run it.
#include <gtest/gtest.h>

#include "plan/block/cost.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stage/stage.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr int kFirstLayer = 1;

Plan recomputing_plan() {
  Plan plan = small_plan();
  plan.micro_batch = 4;
  plan.blocks.front().layout.recompute = Recompute::Full;
  return plan;
}

const BlockCost& cost_of(const Plan& plan, BlockCosts& costs) {
  return costs.of(plan.network.chain[kFirstLayer], plan.layout_of(kFirstLayer), plan.micro_batch);
}

BlockCost cost_of(const Plan& plan) {
  BlockCosts costs(plan);
  return cost_of(plan, costs);
}

TEST(HostTimeTest, TheHostIssuesTheBackwardWhileTheDeviceRecomputes) {
  Plan plan = recomputing_plan();
  const BlockCost device = cost_of(plan);
  const double forward = to_seconds(device.forward.time).value();
  const double both = to_seconds(device.backward.time).value();
  // Longer than a forward, but two of them are shorter than recomputation and backward.
  plan.execution.host_per_block = Seconds(1.1 * forward);
  ASSERT_LT(2.2 * forward, both);
  const BlockCost queued = cost_of(plan);
  EXPECT_NEAR(to_seconds(queued.forward.time).value(), 1.1 * forward, 1e-9);
  EXPECT_NEAR(to_seconds(queued.recompute.time).value(), 1.1 * forward, 1e-9);
  EXPECT_EQ(queued.backward.time, device.backward.time);

  plan.execution.host_per_block = Seconds(2 * both);
  EXPECT_NEAR(to_seconds(cost_of(plan).backward.time).value(), 4 * both, 1e-9);
}

TEST(HostTimeTest, SplitBackwardsQueueTheRecomputationToo) {
  Plan plan = recomputing_plan();
  plan.schedule = "zb-h1";
  const auto times = [&] {
    BlockCosts costs(plan);
    SplitBackwards splits;
    const StageContent content = stage_contents(plan).front();
    return splits.times(content, plan, costs, add_up_stage(content, plan, costs));
  };
  const double forward = to_seconds(cost_of(plan).forward.time).value();
  const SplitTimes device = times();
  plan.execution.host_per_block = Seconds(1.05 * forward);
  // B is the recomputation and half of the backward: the host needs 1.5 passes for it.
  EXPECT_NEAR(to_seconds(times().input_grad).value(), to_seconds(device.input_grad).value(),
              1e-3 * forward);
}

TEST(HostTimeTest, ASlowHostOfADrawCanOvertakeTheDevice) {
  Plan plan = recomputing_plan();
  const SimTime device = cost_of(plan).forward.time;
  plan.execution.host_per_block = to_seconds(device) * 0.9;
  BlockCosts costs(plan);
  const BlockCost& cost = cost_of(plan, costs);
  EXPECT_EQ(cost.forward.time, device);
  CostFactors factors;
  factors.host = 0.5;
  costs.set_factors(factors);
  EXPECT_NEAR(to_seconds(cost.forward.time) / to_seconds(device), 0.9 * factor_of(0.5), 1e-6);
  factors.host = -0.5;
  costs.set_factors(factors);
  EXPECT_EQ(cost.forward.time, device);
}

}  // namespace
}  // namespace orrery::plan
