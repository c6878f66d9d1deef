// SPDX-License-Identifier: Apache-2.0
// Plans in a few words: those that stand side by side and differ do not read alike.
#include "plan/document/plan_text.hpp"

#include <gtest/gtest.h>

#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

Plan cut_plan(const std::vector<int>& stages, std::int64_t micro_batch) {
  Plan plan = small_plan(small_spec(), "dgx-a100:1");
  plan.pp = static_cast<int>(stages.size());
  plan.schedule = "1f1b";
  plan.micro_batch = micro_batch;
  plan.stage_blocks = stages;
  return plan;
}

TEST(PlanText, EqualLayoutsSayTheirStages) {
  const Plan even = cut_plan({3, 3}, 1);
  const Plan uneven = cut_plan({4, 2}, 1);
  const Plan other = cut_plan({4, 2}, 2);
  ASSERT_EQ(layout_text(even), layout_text(uneven));
  EXPECT_EQ(layout_texts({&even, &uneven, &other}),
            (std::vector<std::string>{layout_text(even) + ", stages 3 3",
                                      layout_text(uneven) + ", stages 4 2", layout_text(other)}));
}

TEST(PlanText, EqualPlansReadAlike) {
  const Plan plan = cut_plan({3, 3}, 1);
  EXPECT_EQ(layout_texts({&plan, &plan}),
            (std::vector<std::string>{layout_text(plan), layout_text(plan)}));
}

// By choice, each once; positions at one distance are not counted up.
TEST(PlanText, BlocksSayWhereTheyAre) {
  Plan plan = cut_plan({20}, 1);
  BlockPlan one;
  BlockPlan other;
  other.recompute = Recompute::Full;
  plan.blocks = {{2, one}};
  for (int pair = 0; pair < 4; ++pair) {  // 2 4 6 8 of the other
    plan.blocks.push_back({1, other});
    plan.blocks.push_back({1, one});
  }
  plan.blocks.push_back({2, one});
  plan.blocks.push_back({8, other});
  const std::vector<std::string> texts = block_texts(plan);
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_TRUE(texts[0].starts_with("0-1, 3, 5, 7, 9-11: tp 1, dp ")) << texts[0];
  EXPECT_TRUE(texts[1].starts_with("2, 4, ..., 8, 12-19: tp 1, dp ")) << texts[1];
  EXPECT_TRUE(texts[1].ends_with("recompute full")) << texts[1];
}

}  // namespace
}  // namespace orrery::plan
