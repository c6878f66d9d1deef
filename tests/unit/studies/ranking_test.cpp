// SPDX-License-Identifier: Apache-2.0
// Ranking, ratios, baseline and coverage on tables whose answers are known by hand.
#include "studies/validation/ranking.hpp"

#include <gmock/gmock.h>

namespace orrery::studies {
namespace {

RowResult run(const std::string& plan, double predicted, double measured) {
  RowResult row;
  row.id = plan;
  row.config_id = plan;
  row.source = "s";
  row.quantity = "iteration_time_s";
  row.plan = plan;
  row.plan_group = "g";
  row.network_group = "n";
  row.gpu = "a100";
  row.predicted = predicted;
  row.measured = measured;
  return row;
}

std::vector<const RowResult*> pointers(const std::vector<RowResult>& rows) {
  std::vector<const RowResult*> list;
  for (const RowResult& row : rows) {
    list.push_back(&row);
  }
  return list;
}

TEST(KendallTest, CountsPairs) {
  EXPECT_EQ(kendall_tau({{1, 1}, {2, 2}, {3, 3}}), 1.0);
  EXPECT_EQ(kendall_tau({{1, 3}, {2, 2}, {3, 1}}), -1.0);
  EXPECT_NEAR(*kendall_tau({{1, 1}, {2, 3}, {3, 2}}), 1.0 / 3, 1e-12);
  EXPECT_NEAR(*kendall_tau({{1, 1}, {2, 2}, {3, 4}, {4, 3}, {5, 5}}), 0.8, 1e-12);
}

// tau-b = (C - D) / sqrt((pairs - ties in x) (pairs - ties in y)): here C 4, D 1, one tie in x.
TEST(KendallTest, TiesAreCountedOut) {
  EXPECT_NEAR(*kendall_tau({{1, 1}, {1, 2}, {2, 4}, {3, 3}}), (4.0 - 1.0) / std::sqrt(5.0 * 6.0),
              1e-12);
  EXPECT_FALSE(kendall_tau({{1, 1}, {1, 2}, {1, 3}}).has_value());
  EXPECT_FALSE(kendall_tau({{1, 5}, {2, 5}, {3, 5}}).has_value());
  EXPECT_FALSE(kendall_tau({}).has_value());
}

TEST(RegretTest, ComparesTheFirstChoiceWithTheBest) {
  EXPECT_NEAR(first_choice_regret({{1, 1.1}, {2, 1.0}, {3, 4}}), 0.1, 1e-12);
  EXPECT_EQ(first_choice_regret({{1, 1.0}, {2, 9}}), 0.0);
  EXPECT_NEAR(first_choice_regret({{1, 1.0}, {1, 1.2}, {3, 4}}), 0.1, 1e-12);  // predicted equal
}

TEST(RankingTest, GroupsArePlansOfOneNetworkOnOneCluster) {
  std::vector<RowResult> rows = {run("a", 1, 1), run("b", 2, 2), run("c", 3, 3)};
  RowResult other = run("d", 1, 9);
  other.plan_group = "h";  // alone in its group: not ranked
  RowResult memory = run("e", 9, 1);
  memory.memory = true;
  RowResult skipped = run("f", 9, 1);
  skipped.skipped_because = "why";
  rows.insert(rows.end(), {other, memory, skipped});
  const Ranking ranking = rank_plans(pointers(rows));
  EXPECT_EQ(ranking.groups, 1U);
  EXPECT_EQ(ranking.plans, 3U);
  EXPECT_EQ(ranking.tau, 1.0);
  EXPECT_EQ(ranking.regret_worst, 0.0);
}

// Two runs of plan a measured 1.0 and 1.4 count as one plan of 1.2.
TEST(RankingTest, RepeatsOfAPlanCountOnce) {
  const Ranking ranking =
      rank_plans(pointers({run("a", 1, 1.0), run("a", 1, 1.4), run("b", 2, 1.1)}));
  EXPECT_EQ(ranking.plans, 2U);
  EXPECT_FALSE(ranking.tau.has_value());  // two plans have no tau
  EXPECT_NEAR(*ranking.regret_median, 1.2 / 1.1 - 1, 1e-12);
}

// One source with two groups of tau 1 and -1, one with tau 1: the mean of 0 and 1.
TEST(RankingTest, SourcesWeighTheSame) {
  std::vector<RowResult> rows = {run("a", 1, 1), run("b", 2, 2), run("c", 3, 3)};
  for (RowResult row : {run("a", 1, 3), run("b", 2, 2), run("c", 3, 1)}) {
    row.plan_group = "reversed";
    rows.push_back(row);
  }
  for (RowResult row : {run("a", 1, 1), run("b", 2, 2), run("c", 3, 3)}) {
    row.source = "t";
    rows.push_back(row);
  }
  const Ranking ranking = rank_plans(pointers(rows));
  EXPECT_NEAR(*ranking.tau, 0.5, 1e-12);
  EXPECT_EQ(ranking.tau_median, 1.0);
  EXPECT_NEAR(*ranking.regret_worst, 2.0, 1e-12);
}

// A common factor cancels; the third run is 10 % off against the other two.
TEST(RatioTest, ACommonFactorCancels) {
  const ErrorSummary ratio =
      ratio_errors(pointers({run("a", 2, 1), run("b", 4, 2), run("c", 6.6, 3)}));
  EXPECT_EQ(ratio.simulated, 3U);
  EXPECT_NEAR(*ratio.p90, 0.1, 1e-12);
  EXPECT_NEAR(*ratio.mean, (0.0 * 0.5 + 0.1 * 0.5 + 0.1) / 2, 1e-12);
  EXPECT_EQ(ratio_errors(pointers({run("a", 2, 1)})).simulated, 0U);
}

TEST(RatioTest, AThousandRunsAreNotAMillionPairs) {
  std::vector<RowResult> rows;
  for (int i = 0; i < 1000; ++i) {
    rows.push_back(run(std::to_string(i), 1, 1));
  }
  EXPECT_LE(ratio_errors(pointers(rows)).simulated, 1000 * kRatioNeighbours);
}

// Rates 2, 1 and 1: the constant rate 1 has the errors 1, 0 and 0, the least mean.
TEST(BaselineTest, OneRateForEachGpu) {
  std::vector<RowResult> rows = {run("a", 9, 1), run("b", 9, 2), run("c", 9, 3)};
  rows[0].flops_per_gpu = 2;
  rows[1].flops_per_gpu = 2;
  rows[2].flops_per_gpu = 3;
  const std::vector<RowResult> baseline = baseline_rows(pointers(rows));
  ASSERT_EQ(baseline.size(), 3U);
  double mean = 0;
  for (const RowResult& row : baseline) {
    mean += std::abs(row.error()) / 3;
  }
  EXPECT_NEAR(mean, 0.5 / 3 * 2, 0.01);
  rows[0].gpu = "h100";  // a GPU of its own is fitted exactly
  EXPECT_NEAR(baseline_rows(pointers(rows))[0].error(), 0.0, 1e-12);
  rows[1].flops_per_gpu = 0;
  EXPECT_EQ(baseline_rows(pointers(rows)).size(), 2U);
}

TEST(CoverageTest, IsTheShareInsideTheInterval) {
  std::vector<RowResult> rows = {run("a", 1, 1.05), run("b", 1, 1.3), run("c", 1, 0.95),
                                 run("d", 1, 1.0)};
  for (RowResult& row : rows) {
    row.low = 0.9;
    row.high = 1.1;
  }
  rows.push_back(run("no interval", 1, 7));
  const Validation validation = summarise(rows);
  EXPECT_NEAR(*validation.overall.time.coverage80, 0.75, 1e-12);
  EXPECT_NEAR(*validation.sources.at("s").full.time.coverage80, 0.75, 1e-12);
  EXPECT_FALSE(validation.partial.time.coverage80.has_value());
  const Json overall = *to_json(validation).find("overall");
  EXPECT_NEAR(overall.find("coverage80")->as_number(), 0.75, 1e-12);
  EXPECT_NE(overall.find("kendall_tau"), nullptr);
  EXPECT_NE(overall.find("regret")->find("worst"), nullptr);
  EXPECT_NE(overall.find("baseline")->find("mean_abs_error"), nullptr);
  EXPECT_THAT(to_markdown(validation), ::testing::HasSubstr("| 75.0 % | 5 | 0 |"));
}

}  // namespace
}  // namespace orrery::studies
