// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/plan_groups.hpp"

#include <gtest/gtest.h>

namespace orrery::studies {
namespace {

RowResult row(const std::string& group, const std::string& plan, double predicted, double measured,
              bool full = true) {
  RowResult result;
  result.source = "source";
  result.plan_group = group;
  result.plan = plan;
  result.predicted = predicted;
  result.measured = measured;
  result.full = full;
  return result;
}

std::vector<RowResult> four(const std::string& group, double chosen, bool full = true) {
  return {row(group, "a", 1.0, chosen, full), row(group, "b", 2.0, 10.0, full),
          row(group, "c", 3.0, 12.0, full), row(group, "d", 4.0, 14.0, full)};
}

TEST(PlanGroupsTest, RegretIsOfThePlanPredictedBest) {
  const std::vector<PlanGroup> groups = plan_groups(four("x", 11.0));
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_NEAR(groups.front().regret, 0.1, 1e-12);
  EXPECT_FALSE(groups.front().is_good());
  EXPECT_EQ(groups.front().chosen, "a");
  EXPECT_EQ(groups.front().best, "b");
  EXPECT_EQ(groups.front().plans, 4U);
}

TEST(PlanGroupsTest, ThreePercentAreGoodAndFewerThanFourPlansAreNoGroup) {
  std::vector<RowResult> rows = four("x", 10.29);
  for (const RowResult& extra : four("y", 10.31)) {
    rows.push_back(extra);
  }
  rows.push_back(row("z", "a", 1, 1));
  rows.push_back(row("z", "b", 2, 2));
  rows.push_back(row("z", "c", 3, 3));
  const Json json = plan_groups_json(plan_groups(rows));
  EXPECT_EQ(json.find("eligible")->as_integer(), 2);
  EXPECT_EQ(json.find("within_3_percent")->as_integer(), 1);
  EXPECT_EQ(json.find("share")->as_number(), 0.5);
}

// Rows of one plan count once, with their mean.
TEST(PlanGroupsTest, RepeatedRunsOfAPlanAreItsMean) {
  std::vector<RowResult> rows = four("x", 9.0);
  rows.push_back(row("x", "a", 1.0, 13.0));
  const std::vector<PlanGroup> groups = plan_groups(rows);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups.front().plans, 4U);
  EXPECT_NEAR(groups.front().regret, 0.1, 1e-12);
}

TEST(PlanGroupsTest, PartialRowsSkippedOnesAndMemoryStayApart) {
  std::vector<RowResult> rows = four("x", 10.0, false);
  RowResult memory = row("x", "e", 0.1, 0.1);
  memory.memory = true;
  RowResult skipped = row("x", "f", 0.1, 0.1);
  skipped.skipped_because = "reason";
  rows.push_back(memory);
  rows.push_back(skipped);
  const std::vector<PlanGroup> groups = plan_groups(rows);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_FALSE(groups.front().full);
  const Json json = plan_groups_json(groups);
  EXPECT_EQ(json.find("eligible")->as_integer(), 0);
  EXPECT_TRUE(json.find("share")->is_null());
  EXPECT_NE(plan_groups_text(groups).find("(partial)"), std::string::npos);
}

}  // namespace
}  // namespace orrery::studies
