// SPDX-License-Identifier: Apache-2.0
// What a search says when it ends early or tolerates a gap, and the independent check of its plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "search/tree/search.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// Stopped at once: nothing is claimed that was not proved.
TEST(Search, TimeLimitLeavesAnHonestGap) {
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:2", {}, 64, 2048});
  Options options;
  options.jobs = 1;
  const Seconds best = search(base, options).best->simulation.iteration_time;
  for (const double limit : {1e-9, 0.002, 0.01, 0.03, 0.1}) {
    options.time_limit = Seconds(limit);
    const Outcome outcome = search(base, options);
    EXPECT_LE(outcome.lower_bound, best) << limit;
    EXPECT_GT(outcome.lower_bound, Seconds(0)) << limit;
    EXPECT_TRUE(outcome.best) << limit;  // a limit waits for a first plan
    if (!outcome.best) {
      EXPECT_TRUE(outcome.timed_out);
      EXPECT_EQ(outcome.gap_fraction, 1.0) << limit;
      continue;
    }
    const Seconds time = outcome.best->simulation.iteration_time;
    EXPECT_DOUBLE_EQ(outcome.gap_fraction, 1.0 - outcome.lower_bound / time) << limit;
    EXPECT_GE(time, best);
    EXPECT_EQ(verify(*outcome.best), "");
    if (!outcome.timed_out) {
      EXPECT_EQ(time, best);
      EXPECT_EQ(outcome.gap_fraction, 0.0);
    }
  }
}

// Whoever stops before the plans are counted does not wait for that; nothing is claimed of the
// rest.
TEST(Search, EndsWhilePlansAreCounted) {
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:2", {}, 64, 2048});
  Options options;
  options.jobs = 1;
  options.constraints.allow("meshes");
  options.most_work = 1;
  const Outcome whole = search(base, options);
  options.stop = [] { return true; };
  const Outcome stopped = search(base, options);
  EXPECT_GT(stopped.plans, 0);
  EXPECT_LT(stopped.plans, whole.plans / 10);
  EXPECT_TRUE(stopped.interrupted);
  EXPECT_FALSE(stopped.best);
  EXPECT_EQ(stopped.unexplored, stopped.plans);
  EXPECT_EQ(stopped.gap_fraction, 1.0);
  EXPECT_GT(stopped.lower_bound, Seconds(0));
  EXPECT_LE(stopped.lower_bound, whole.best->simulation.iteration_time);
  int asked = 0;  // half of the groups are counted, and not one node is looked at
  options.stop = [&asked] { return ++asked > 40; };
  const Outcome later = search(base, options);
  EXPECT_GT(later.plans, stopped.plans);
  EXPECT_LT(later.plans, whole.plans);
  EXPECT_EQ(later.unexplored, later.plans);
  EXPECT_LE(later.lower_bound, whole.best->simulation.iteration_time);
}

// A plan that takes longer than can be simulated is passed over, and does not end the search.
TEST(Search, PlansBeyondSimulatedTimeArePassedOver) {
  plan::Plan base = base_plan({small_spec(4), "dgx-a100:1", {}, 64, 2048});
  base.batch = 1 << 23;
  base.sequence = 1 << 20;
  Options options;
  options.constraints.fix("schedule=1f1b,recompute=full,micro_batch=1,tp=1,cp=8");
  const Outcome none = search(base, options);
  EXPECT_FALSE(none.best);
  EXPECT_GT(none.plans, 0);
  EXPECT_EQ(none.infeasible, none.plans);
  EXPECT_THAT(none.closest_overflow, testing::HasSubstr("104 days"));
}

// Errors of times may lead beyond simulated time where the plan itself does not: no interval then.
TEST(Search, PlansNearTheEndOfSimulatedTimeHaveNoInterval) {
  plan::Plan base = base_plan({small_spec(4), "dgx-a100:1", {}, 64, 2048});
  base.sequence = 1 << 20;
  Options options;
  options.constraints.fix("schedule=1f1b,recompute=full,micro_batch=1,tp=1,cp=8");
  const Seconds unit = search(base, options).best->simulation.iteration_time;
  constexpr double kLongest = 9.0e6;  // seconds, of which 104 days are a little less
  base.batch = static_cast<std::int64_t>(64 * kLongest * 0.98 / unit.value());
  const Outcome outcome = search(base, options);
  ASSERT_TRUE(outcome.best);
  EXPECT_FALSE(outcome.best->simulation.has_interval());
}

// What the checker says of an answer is what its plans take and hold, not what the search wrote.
TEST(Search, ReportedPlansAreCheckedApart) {
  Options options;
  options.top = 3;
  Outcome outcome = search(base_plan({small_spec(4)}), options);
  ASSERT_EQ(outcome.alternatives.size(), 3U);
  for (const int jobs : {1, 2}) {
    EXPECT_EQ(verify(outcome, jobs), "");
  }
  Found& third = outcome.alternatives[1];
  third.simulation.iteration_time = third.simulation.iteration_time * 1.01;
  EXPECT_THAT(verify(outcome, 2), testing::StartsWith("plan 3: simulating the plan gives "));
  outcome.best->simulation.iteration_time = Seconds(1e-9);
  EXPECT_THAT(verify(outcome, 2), testing::StartsWith("plan 1: "));
}

TEST(Search, ToleratedGapStopsEarlyAndHolds) {
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:2", {}, 64, 2048});
  Options options;
  options.jobs = 1;
  const Outcome exact = search(base, options);
  options.gap_fraction = 0.2;
  const Outcome rough = search(base, options);
  EXPECT_LE(rough.gap_fraction, 0.2);
  EXPECT_LE(rough.simulated, exact.simulated);
  EXPECT_LE(rough.lower_bound, exact.best->simulation.iteration_time);
  EXPECT_LE(rough.best->simulation.iteration_time * (1 - 0.2),
            exact.best->simulation.iteration_time);
}

TEST(Search, ProgressOnlyImproves) {
  Options options;
  options.jobs = 1;
  std::vector<ProgressReport> reports;
  const Outcome outcome = search(base_plan(), options,
                                 [&](const ProgressReport& report) { reports.push_back(report); });
  ASSERT_FALSE(reports.empty());
  for (std::size_t index = 1; index < reports.size(); ++index) {
    EXPECT_LE(reports[index].best, reports[index - 1].best);
    EXPECT_GE(reports[index].simulated, reports[index - 1].simulated);
    EXPECT_LE(reports[index].gap_fraction, reports[index - 1].gap_fraction);
  }
  for (const ProgressReport& report : reports) {
    EXPECT_GT(report.bound, Seconds(0));
    EXPECT_LE(report.bound, outcome.best->simulation.iteration_time);
    EXPECT_GE(report.best, outcome.best->simulation.iteration_time);
    EXPECT_NEAR(report.gap_fraction, std::max(0.0, 1 - report.bound / report.best), 1e-12);
  }
  EXPECT_GT(reports.front().simulated, 0);  // an answer comes with the first seeds
  EXPECT_EQ(reports.back().simulated, outcome.simulated);
  EXPECT_EQ(reports.back().gap_fraction, 0.0);
}

TEST(Verify, FindsWrongTimesAndOverflows) {
  Options options;
  options.jobs = 1;
  Found found = *search(base_plan(), options).best;
  EXPECT_EQ(verify(found), "");
  Found slower = found;
  slower.simulation.iteration_time *= 1 + 1e-15;
  EXPECT_THAT(verify(slower), testing::HasSubstr("the search said"));
  Found large = found;
  large.plan.memory_reserve = large.plan.cluster.gpu.memory - ByteCount(1LL << 20);
  EXPECT_THAT(verify(large), testing::HasSubstr("needs"));
}

}  // namespace
}  // namespace orrery::search
