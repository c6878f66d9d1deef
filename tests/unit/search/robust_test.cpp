// SPDX-License-Identifier: Apache-2.0
// Plans under common draws of the cost model's errors, and hardware that is a little better.
#include "search/robust.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

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
  const auto times = [&](std::uint64_t seed) {
    return plan::sample_times(plan, plan::draw_errors(plan.profile.spread, 8, seed));
  };
  EXPECT_EQ(times(5), times(5));
  EXPECT_NE(times(5), times(6));
}

// Draws are judged round by round; pairs of opposite errors stay together.
TEST(RobustTest, RoundsAddUpToAllDraws) {
  const plan::Plan base = base_plan();
  const Outcome nominal = search(base, options_of(1));
  const RobustOptions how{.draws = 300, .seed = 7, .most = 2};
  int drawn = 0;
  int to_draw = 0;
  const auto progress = [&](const ProgressReport& report) {
    drawn = std::max(drawn, report.drawn);
    to_draw = std::max(to_draw, report.to_draw);
  };
  const Robust robust = find_robust(base, options_of(1), nominal, how, progress);
  ASSERT_EQ(robust.plans.size(), 2u);
  EXPECT_EQ(robust.draws, 300);
  EXPECT_EQ(to_draw, 600);
  EXPECT_EQ(drawn, 599);
  const auto draws = plan::draw_errors(base.profile.spread, 300, 7);
  const auto first = plan::sample_times(robust.plans[0].found.plan, draws);
  const auto second = plan::sample_times(robust.plans[1].found.plan, draws);
  double best = 0;
  double loss = 0;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    best += first[i] < second[i] ? 1 : first[i] == second[i] ? 0.5 : 0;
    loss += std::max(0.0, first[i] / second[i] - 1);
  }
  EXPECT_NEAR(robust.plans[0].probability_best, best / 300, 1e-12);
  EXPECT_NEAR(robust.plans[0].mean_loss, loss / 300, 1e-12);
}

// Where the search for more plans ends early those that the first one found are compared.
TEST(RobustTest, AnEarlyEndComparesWhatWasFound) {
  const plan::Plan base = base_plan();
  Options options = options_of(1);
  const Outcome nominal = search(base, options);
  options.stop = [] { return true; };
  const Robust robust = find_robust(base, options, nominal, {.draws = 16, .seed = 3, .most = 64});
  EXPECT_EQ(robust.plans.size(), nominal.alternatives.size() + 1);
  EXPECT_EQ(robust.draws, 16);
  EXPECT_FALSE(robust.complete);
  EXPECT_TRUE(robust.ended_early);
  double sum = 0;
  for (const RobustPlan& plan : robust.plans) {
    sum += plan.probability_best;
  }
  EXPECT_NEAR(sum, 1, 1e-12);
}

Problem bert_problem() {
  Problem problem;
  problem.network = "bert-base";
  problem.cluster = "dgx-a100:2";
  problem.batch = 64;
  return problem;
}

TEST(SensitivityTest, PlanningAgainIsNeverWorseAndMemoryAloneBuysNoTime) {
  const Problem problem = bert_problem();
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

// What was set is what gets better.
TEST(SensitivityTest, HardwareThatWasSetCanBeBetter) {
  Problem problem = bert_problem();
  problem.settings = {"gpu.memory=70 GB", "gpu.hbm_bandwidth=1 TB/s"};
  const plan::Plan base = base_plan(problem);
  Options options = options_of(1);
  options.constraints.fix("tp=1,cp=1,pp=2");
  const Outcome nominal = search(base, options);
  bool seen = false;
  for (const Sensitivity& row : find_sensitivity(problem, base, options, *nominal.best, 0.1)) {
    if (row.parameter == "HBM bandwidth") {
      seen = true;
      EXPECT_DOUBLE_EQ(row.plan.cluster.gpu.hbm_bandwidth.value(), 1.1e12);
      EXPECT_EQ(row.plan.cluster.gpu.memory, ByteCount(70'000'000'000));
      EXPECT_LT(row.same_plan, nominal.best->simulation.iteration_time);
    }
  }
  EXPECT_TRUE(seen);
}

std::map<std::string, Sensitivity> rows_by_path(const Problem& problem, const std::string& fix,
                                                const std::string& allow) {
  const plan::Plan base = base_plan(problem);
  Options options = options_of(1);
  options.constraints.fix(fix);
  if (!allow.empty()) {
    options.constraints.allow(allow);
  }
  const Outcome nominal = search(base, options);
  std::map<std::string, Sensitivity> rows;
  for (Sensitivity& row : find_sensitivity(problem, base, options, *nominal.best, 0.1)) {
    rows.emplace(row.path, std::move(row));
  }
  return rows;
}

TEST(SensitivityTest, WhatLimitsThePlanIsAmongThem) {
  Problem problem = bert_problem();
  problem.cluster = "hgx-h100:2";
  problem.settings = {"fabric.oversubscription=4", "gpu.power_watts=300"};
  const auto rows = rows_by_path(problem, "tp=1,cp=1,pp=1", "");
  EXPECT_EQ(rows.at("gpu.power_watts").plan.cluster.gpu.power_watts, 330);
  EXPECT_LT(rows.at("gpu.power_watts").same_plan, rows.at("gpu.memory").same_plan);
  problem.cluster = "dgx-a100:2";  // whose products no known limit slows
  EXPECT_DOUBLE_EQ(rows.at("fabric.oversubscription").plan.cluster.fabric.oversubscription,
                   4 / 1.1);
  EXPECT_FALSE(rows.contains("node.host.memory_bandwidth"));
  problem.settings.clear();
  const auto unlimited = rows_by_path(problem, "tp=1,cp=1,pp=1", "");
  EXPECT_FALSE(unlimited.contains("fabric.oversubscription"));
  EXPECT_FALSE(unlimited.contains("gpu.power_watts"));
  const auto offloading = rows_by_path(problem, "tp=1,cp=1,pp=1,zero=1,offload_optimizer=host", "");
  EXPECT_LE(offloading.at("node.host.memory_bandwidth").same_plan,
            offloading.at("gpu.memory").same_plan);
}

// Where no time is left the plan as it is says what there is to say.
TEST(SensitivityTest, ATimeLimitIsThatOfAllSearches) {
  const Problem problem = bert_problem();
  const plan::Plan base = base_plan(problem);
  Options options = options_of(1);
  const Outcome nominal = search(base, options);
  const auto rows_within = [&](double limit) {
    options.time_limit = Seconds(limit);
    return find_sensitivity(problem, base, options, *nominal.best, 0.1);
  };
  for (const Sensitivity& row : rows_within(1e-9)) {
    EXPECT_FALSE(row.searched) << row.parameter;
    EXPECT_GT(row.same_plan, Seconds()) << row.parameter;
  }
  for (const Sensitivity& row : rows_within(3600)) {
    EXPECT_TRUE(row.searched) << row.parameter;
    EXPECT_LE(row.replanned, row.same_plan) << row.parameter;
  }
}

// Of a search that ends early the gap is that of the plan told: no plan is faster by more.
TEST(SensitivityTest, GapsOfSearchesThatEndEarlyHold) {
  const Problem problem = bert_problem();
  const plan::Plan base = base_plan(problem);
  Options options = options_of(1);
  const Outcome nominal = search(base, options);
  options.time_limit = Seconds(3600);
  const auto rows = find_sensitivity(problem, base, options, *nominal.best, 0.1);
  int open = 0;
  for (int questions = 1; questions < 200; questions *= 3) {
    int left = questions;  // of every search
    options.stop = [&left] { return left-- <= 0; };
    const auto early = find_sensitivity(problem, base, options, *nominal.best, 0.1,
                                        [&](std::size_t) { left = questions; });
    ASSERT_EQ(early.size(), rows.size());
    for (std::size_t index = 0; index < rows.size(); ++index) {
      const Sensitivity& row = early[index];
      EXPECT_EQ(rows[index].gap_fraction, 0.0) << row.parameter;
      EXPECT_LE(row.replanned, row.same_plan) << row.parameter;
      EXPECT_GE(row.replanned, rows[index].replanned) << row.parameter;
      EXPECT_GE(rows[index].replanned.value(),
                row.replanned.value() * (1.0 - row.gap_fraction) * (1.0 - 1e-12))
          << row.parameter;
      open += row.gap_fraction > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(open, 0);
}

}  // namespace
}  // namespace orrery::search
