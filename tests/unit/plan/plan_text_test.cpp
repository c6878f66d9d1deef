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

}  // namespace
}  // namespace orrery::plan
