// SPDX-License-Identifier: Apache-2.0
// Plans under common draws of the cost model's errors, and hardware that is a little better.
#include "search/robust.hpp"

#include <gtest/gtest.h>

#include "plan/document/plan_text.hpp"
#include "plan/simulation/sample_times.hpp"
#include "search/sensitivity.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

Options options_of(int jobs) {
  Options options;
  options.jobs = jobs;
  options.constraints.choose_schedule("1f1b");
  return options;
}

TEST(RobustTest, ProbabilitiesSumToOneAndDoNotDependOnThreads) {
  const plan::Plan base = base_plan();
  const Outcome nominal = search(base, options_of(1));
  const RobustOptions how{.draws = 32, .seed = 7, .most = 24};
  const Robust one = find_robust(base, options_of(1), nominal, how);
  const Robust two = find_robust(base, options_of(2), nominal, how);
  double sum = 0;
  ASSERT_EQ(one.plans.size(), two.plans.size());
  for (std::size_t i = 0; i < one.plans.size(); ++i) {
    sum += one.plans[i].probability_best;
    EXPECT_EQ(one.plans[i].probability_best, two.plans[i].probability_best);
    EXPECT_EQ(one.plans[i].mean_loss, two.plans[i].mean_loss);
    EXPECT_GE(one.plans[i].worst_loss, one.plans[i].mean_loss);
  }
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_GE(one.plans.front().probability_best, one.plans.back().probability_best);
}

// The winner of every draw, counted from the times of every plan of the space within the reach.
TEST(RobustTest, EveryPlanWithinTheReachIsConsidered) {
  const plan::Plan base = base_plan();
  const Options options = options_of(1);
  const Outcome nominal = search(base, options);
  const Robust robust = find_robust(base, options, nominal, {.draws = 16, .seed = 3, .most = 4000});
  EXPECT_TRUE(robust.complete);
  const Seconds limit = nominal.best->simulation.iteration_time * robust.reach;
  std::size_t within = 0;
  enumerate(base, options.constraints,
            [&](const plan::Plan&, const plan::Simulation& simulation, plan::Simulator&) {
              within += !simulation.does_not_fit && simulation.iteration_time <= limit ? 1U : 0U;
            });
  EXPECT_EQ(robust.plans.size(), within);
  EXPECT_LE(robust.farthest_winner, robust.reach - 1);
}

TEST(RobustTest, DrawsAreCommonToAllPlans) {
  const plan::Plan base = base_plan();
  const Outcome nominal = search(base, options_of(1));
  const plan::Plan& plan = nominal.best->plan;
  EXPECT_EQ(plan::sample_times(plan, 8, 5), plan::sample_times(plan, 8, 5));
  EXPECT_NE(plan::sample_times(plan, 8, 5), plan::sample_times(plan, 8, 6));
}

Problem small_problem() {
  Problem problem;
  problem.network = "bert-base";
  problem.cluster = "dgx-a100:2";
  problem.batch = 64;
  return problem;
}

TEST(SensitivityTest, PlanningAgainIsNeverWorseAndMemoryAloneBuysNoTime) {
  const Problem problem = small_problem();
  const plan::Plan base = base_plan(problem);
  const Options options = options_of(1);
  const Outcome nominal = search(base, options);
  const std::vector<Sensitivity> rows =
      find_sensitivity(problem, base, options, *nominal.best, 0.1);
  const Seconds best = nominal.best->simulation.iteration_time;
  bool peak = false;
  for (const Sensitivity& row : rows) {
    EXPECT_LE(row.replanned, row.same_plan) << row.parameter;
    if (row.parameter == "memory") {
      EXPECT_EQ(row.same_plan, best);
    }
    if (row.parameter == "peak rate" || row.parameter == "HBM bandwidth") {
      peak = true;
      EXPECT_LT(row.same_plan, best) << row.parameter;
      EXPECT_GT(row.same_plan, best / 1.1) << row.parameter;
    }
  }
  EXPECT_TRUE(peak);
  EXPECT_GE(rows.size(), 8U);
}

}  // namespace
}  // namespace orrery::search
