// SPDX-License-Identifier: Apache-2.0
// The plan that the search of a mixed cluster has before it lists all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>

#include "search/mixed/early_plan.hpp"
#include "search/mixed/search.hpp"

namespace orrery::search {
namespace {

plan::MixedPlan large_base(const std::string& network) {
  Problem problem;
  problem.network = network;
  problem.cluster = "hgx-h100:32+dgx-a100:32";
  problem.batch = 1024;
  return mixed_base_plan(problem);
}

Options without_intervals() {
  Options options;
  options.interval_draws = 0;
  return options;
}

TEST(MixedEarlyPlan, IsTheAnswerOfASearchThatEndsWhileItLists) {
  const plan::MixedPlan base = large_base("llama3-70b");
  Options options = without_intervals();
  std::atomic<bool> told = false;
  options.stop = [&] { return told.load(); };
  const MixedOutcome outcome = search_mixed(
      base, options, [&](const ProgressReport& report) { told = report.best.value() > 0; });
  const std::optional<MixedFound> early = early_mixed_plan(base, without_intervals());
  ASSERT_TRUE(early && outcome.best);
  EXPECT_TRUE(outcome.interrupted);
  EXPECT_FALSE(outcome.whole_space);
  EXPECT_EQ(outcome.best->simulation.iteration_time, early->simulation.iteration_time);
  EXPECT_EQ(plan::to_json(outcome.best->plan).dump(), plan::to_json(early->plan).dump());
  EXPECT_EQ(outcome.simulated, 1);
  EXPECT_EQ(outcome.simulated + outcome.pruned + outcome.unexplored, outcome.plans);
  EXPECT_EQ(verify(*outcome.best), "");
}

TEST(MixedEarlyPlan, KeepsWhatIsAskedFor) {
  const plan::MixedPlan base = large_base("llama3-8b");
  Options options = without_intervals();
  options.constraints.fix("tp=2,micro_batch=4");
  options.constraints.forbid("pp=8");
  options.constraints.choose_schedule("zb-h1");
  const std::optional<MixedFound> early = early_mixed_plan(base, options);
  ASSERT_TRUE(early);
  EXPECT_EQ(early->plan.shape.blocks.front().layout.tp, 2);
  EXPECT_EQ(early->plan.shape.micro_batch, 4);
  EXPECT_NE(early->plan.shape.pp, 8);
  EXPECT_EQ(early->plan.shape.schedule, "zb-h1");
  options.constraints.fix("pp=5");
  const std::optional<MixedFound> of_five = early_mixed_plan(base, options);
  ASSERT_TRUE(of_five);
  EXPECT_EQ(of_five->plan.shape.pp, 5);
}

// However short it is.
TEST(MixedEarlyPlan, IsWaitedForByALimitOnTime) {
  Problem problem;
  problem.network = "llama3-405b";
  problem.cluster = "hgx-h100:40+dgx-a100:24";
  problem.batch = 1024;
  Options options = without_intervals();
  options.time_limit = Seconds(1e-9);
  const MixedOutcome outcome = search_mixed(mixed_base_plan(problem), options);
  EXPECT_TRUE(outcome.timed_out);
  ASSERT_TRUE(outcome.best);
  EXPECT_EQ(verify(*outcome.best), "");
}

// A search that may end with a gap ends before it has met the early plan.
TEST(MixedEarlyPlan, IsNeverFasterThanTheAnswer) {
  Problem problem;
  problem.network = "llama3-8b";
  problem.cluster = "hgx-h100:2+dgx-a100:2";
  problem.batch = 64;
  problem.sequence = 4096;
  const plan::MixedPlan base = mixed_base_plan(problem);
  Options options = without_intervals();
  options.constraints.choose_schedule("1f1b");
  const std::optional<MixedFound> early = early_mixed_plan(base, options);
  ASSERT_TRUE(early);
  for (const double gap : {0.0, 1.0}) {
    options.gap_fraction = gap;
    const MixedOutcome outcome = search_mixed(base, options);
    ASSERT_TRUE(outcome.best);
    EXPECT_LE(outcome.best->simulation.iteration_time, early->simulation.iteration_time) << gap;
    EXPECT_EQ(outcome.simulated + outcome.pruned + outcome.unexplored, outcome.plans) << gap;
    EXPECT_FALSE(outcome.timed_out || outcome.interrupted);
  }
}

// What ZeRO-2 sends in every pass no bound tells: the first plan of experts that fits takes ten
// times as long as others beside it.
TEST(MixedEarlyPlan, OfExpertsIsNotTheFirstThatFits) {
  Problem problem;
  problem.network = "deepseek-v3";
  problem.cluster = "hgx-h100:48+dgx-a100:16";
  problem.batch = 3072;
  Seconds first;
  const std::optional<MixedFound> early = early_mixed_plan(
      mixed_base_plan(problem), without_intervals(), [&](Seconds time) { first = time; });
  ASSERT_TRUE(early);
  EXPECT_GT(first.value(), 0);
  EXPECT_LT(early->simulation.iteration_time, first * 0.2);
  EXPECT_EQ(verify(*early), "");
}

TEST(MixedEarlyPlan, IsNoneWhereNothingFits) {
  Problem problem;
  problem.network = "llama3-405b";
  problem.cluster = "hgx-h100:1+dgx-a100:1";
  problem.batch = 64;
  EXPECT_FALSE(early_mixed_plan(mixed_base_plan(problem), without_intervals()));
}

}  // namespace
}  // namespace orrery::search
