// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/end_conversions.hpp"

#include <gtest/gtest.h>

#include "plan/block/relayout.hpp"
#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// Embedding and head with one layout, the layers with another; both use the same devices.
Plan converting_plan(const std::string& schedule, int tp_of_ends) {
  Plan plan = small_plan();
  plan.schedule = schedule;
  BlockPlan layers = plan.blocks.front().layout;
  layers.sequence_parallel = true;
  BlockPlan ends = layers;
  ends.tp = tp_of_ends;
  ends.sequence_parallel = tp_of_ends > 1;
  plan.micro_batch = 4;
  const int length = static_cast<int>(plan.network.chain.size());
  plan.blocks = {{1, ends}, {length - 2, layers}, {1, ends}};
  // The degrees of the plan are those of its first block.
  plan.dp = 16 / plan.pp / tp_of_ends;
  plan.micro_batch = 8 / plan.dp;
  check_plan(plan, "plan");
  return plan;
}

TEST(EndConversions, TheStageWithTheLayerPaysInBothPasses) {
  const Plan plan = converting_plan("vocab-2", 2);
  BlockCosts costs(plan);
  std::vector<StageCost> stages;
  for (const StageContent& content : stage_contents(plan)) {
    stages.push_back(simulate_stage(content, plan, costs));
  }
  const std::vector<StageCost> before = stages;
  add_end_conversions(plan, costs, stages);
  const BlockPlan& ends = plan.blocks.front().layout;
  const BlockPlan& layers = plan.blocks[1].layout;
  const auto boundary = [&](int block, const BlockPlan& layout) {
    return costs.of(block, layout, plan.micro_batch_of(layout)).boundary;
  };
  const std::vector<int>& chain = plan.network.chain;
  const Relayout first = relayout(plan, ends, boundary(chain.front(), ends), layers,
                                  boundary(chain[1], layers), costs);
  const Relayout last =
      relayout(plan, layers, boundary(chain[1], layers), ends, boundary(chain.back(), ends), costs);
  ASSERT_GT(first.forward + first.backward, Seconds());
  EXPECT_EQ(stages[0].forward - before[0].forward, to_sim_time(first.forward));
  EXPECT_EQ(stages[0].backward - before[0].backward, to_sim_time(first.backward));
  EXPECT_EQ(stages[1].forward - before[1].forward, to_sim_time(last.forward));
  EXPECT_EQ(stages[1].last_backward - before[1].last_backward, to_sim_time(last.backward));
  for (std::size_t shard = 2; shard < stages.size(); ++shard) {
    EXPECT_EQ(stages[shard].forward, before[shard].forward);
  }
}

TEST(EndConversions, NothingWhereNothingChanges) {
  const Plan same = converting_plan("vocab-2", 4);
  const Plan within = converting_plan("1f1b", 2);  // the blocks of the stages pay
  for (const Plan& plan : {same, within}) {
    BlockCosts costs(plan);
    std::vector<StageCost> stages;
    for (const StageContent& content : stage_contents(plan)) {
      stages.push_back(simulate_stage(content, plan, costs));
    }
    const std::vector<StageCost> before = stages;
    add_end_conversions(plan, costs, stages);
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      EXPECT_EQ(stages[stage].forward, before[stage].forward);
      EXPECT_EQ(stages[stage].backward, before[stage].backward);
    }
  }
}

// The bounds leave conversions out and stay below.
TEST(EndConversions, BoundsHold) {
  for (const char* schedule : {"vocab-1", "vocab-2", "interlaced"}) {
    const Plan plan = converting_plan(schedule, 2);
    Simulator simulator(plan);
    const Seconds time = simulator.run(plan).iteration_time;
    EXPECT_LE(simulator.lower_bound(plan), time);
    EXPECT_LE(simulator.list_bound(plan), time);
  }
}

}  // namespace
}  // namespace orrery::plan
