// SPDX-License-Identifier: Apache-2.0
#include "calibrate/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::calibrate {
namespace {

TEST(Statistics, QuartilesByHand) {
  const Summary summary = summarise(std::vector<double>{4, 1, 3, 2, 5});
  EXPECT_EQ(summary.median, 3);
  EXPECT_EQ(summary.p25, 2);
  EXPECT_EQ(summary.p75, 4);
  EXPECT_EQ(summary.count, 5);
  EXPECT_NEAR(summary.relative_interval, 1.57 * 2 / std::sqrt(5.0) / 3, 1e-12);
  EXPECT_EQ(summarise(std::vector<double>{7}).p75, 7);
  EXPECT_EQ(summarise(std::vector<double>{1, 2}).median, 1.5);
}

TEST(Statistics, OutliersMoveNothing) {
  std::vector<double> values(101, 1.0);
  for (int i = 0; i < 20; ++i) {
    values[static_cast<std::size_t>(i)] = 1e3;
  }
  EXPECT_EQ(summarise(values).median, 1.0);
  EXPECT_EQ(summarise(values).p75, 1.0);
}

TEST(StopRule, EndsEarlyWhenTheMedianIsKnown) {
  StopRule rule({.min_repetitions = 5, .target = 0.01, .min_seconds = 0, .budget_seconds = 10});
  for (int i = 0; i < 4; ++i) {
    rule.add(1e-3);
    EXPECT_FALSE(rule.finished(0));
  }
  rule.add(1e-3);
  EXPECT_TRUE(rule.finished(0));
  EXPECT_TRUE(rule.settled());
}

TEST(StopRule, GoesOnWhileTheSpreadIsWide) {
  StopRule rule({.min_repetitions = 5,
                 .max_repetitions = 1000,
                 .target = 0.01,
                 .min_seconds = 0,
                 .budget_seconds = 10});
  int repetitions = 0;
  while (!rule.finished(0)) {
    rule.add(repetitions++ % 2 == 0 ? 1.0 : 1.1);  // half-width 1.57 x 0.1 / sqrt(n)
  }
  EXPECT_GT(repetitions, 100);
  EXPECT_LT(repetitions, 400);
  EXPECT_TRUE(rule.settled());
}

TEST(StopRule, TheBudgetEndsItUnsettled) {
  StopRule rule({.min_repetitions = 5, .target = 1e-6, .min_seconds = 0, .budget_seconds = 0.1});
  EXPECT_FALSE(rule.finished(1.0));  // nothing measured yet
  rule.add(1);
  rule.add(2);
  EXPECT_FALSE(rule.finished(0.05));
  EXPECT_TRUE(rule.finished(0.1));
  EXPECT_FALSE(rule.settled());
}

TEST(StopRule, MeasuresLongEnoughAndNotForever) {
  StopRule rule({.min_repetitions = 5,
                 .max_repetitions = 50,
                 .target = 0.01,
                 .min_seconds = 1,
                 .budget_seconds = 10});
  for (int i = 0; i < 49; ++i) {
    rule.add(1e-3);
    EXPECT_FALSE(rule.finished(0.5));
    EXPECT_EQ(rule.finished(1.0), i >= 4);
  }
  rule.add(1e-3);
  EXPECT_TRUE(rule.finished(0));
}

TEST(ThrottleGuard, DiscardsThenMarks) {
  using Verdict = ThrottleGuard::Verdict;
  ThrottleGuard guard(2000, 0.5, 2);
  EXPECT_EQ(guard.judge(1800, false), Verdict::Keep);
  EXPECT_EQ(guard.judge(0, false), Verdict::Keep);  // clock unknown
  EXPECT_EQ(guard.judge(900, false), Verdict::Discard);
  EXPECT_EQ(guard.judge(1800, true), Verdict::Discard);
  EXPECT_FALSE(guard.throttled());
  EXPECT_EQ(guard.judge(900, false), Verdict::Keep);
  EXPECT_TRUE(guard.throttled());
}

TEST(TimeBudget, SplitsWhatIsLeft) {
  TimeBudget budget(10, 4, 100);
  EXPECT_DOUBLE_EQ(budget.next(0, 1), 2.5);
  EXPECT_DOUBLE_EQ(budget.next(1, 1), 3.0);  // 1.5 s saved are shared by three
  EXPECT_DOUBLE_EQ(budget.next(4, 1), 3.0);
  EXPECT_DOUBLE_EQ(budget.next(9.5, 1), 0.5);
  EXPECT_DOUBLE_EQ(budget.next(11, 1), 0.0);
  EXPECT_DOUBLE_EQ(TimeBudget(10, 1, 0.3).next(0, 1), 0.3);
}

}  // namespace
}  // namespace orrery::calibrate
