// SPDX-License-Identifier: Apache-2.0
// The order of serving plans, from results made by hand.
#include "search/serving_rank.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

namespace orrery::search {
namespace {

struct Result {
  int tp;
  std::int64_t budget;
  double makespan;
  double first_token = 0.1;
  double output_token = 0.01;
  double mean = 1;
};

plan::Plan plan_with(const Result& result) {
  plan::Plan plan;
  plan.blocks = {{1, {}}};
  plan.blocks.front().layout.tp = result.tp;
  plan::Serving serving;
  serving.options.token_budget = result.budget;
  plan.serving = std::make_shared<const plan::Serving>(serving);
  return plan;
}

struct Ranked {
  std::deque<plan::Plan> plans;
  ServingRanking ranking;

  std::vector<int> order() const {
    std::vector<int> degrees;
    for (const std::size_t index : ranking.list()) {
      degrees.push_back(plans[index].blocks.front().layout.tp);
    }
    return degrees;
  }
};

Ranked ranked(const std::vector<Result>& results, bool over_time, std::size_t top = 5) {
  Ranked all{{}, ServingRanking(over_time, top)};
  for (const Result& result : results) {
    all.plans.push_back(plan_with(result));
    all.ranking.add(all.plans.back(), {Seconds(result.makespan), Seconds(result.first_token),
                                       Seconds(result.output_token), Seconds(result.mean)});
  }
  return all;
}

using Degrees = std::vector<int>;

TEST(ServingRanking, RequestsAtOnceWantThroughput) {
  const std::vector<Result> results = {{1, 512, 100.2, 0.1}, {2, 512, 100, 0.9}, {4, 512, 90, 5}};
  EXPECT_EQ(ranked(results, false).order(), (Degrees{4, 2, 1}));
  EXPECT_EQ(ranked(results, false).ranking.as_fast(), 1);
}

// Of those within 1 % of the highest throughput the first token decides, then the output token,
// then the mean; slower ones follow.
TEST(ServingRanking, PlansThatKeepUpAreRankedByWaiting) {
  const std::vector<Result> results = {{1, 512, 100, 0.9, 0.010},
                                       {2, 512, 100.9, 0.2, 0.030},
                                       {4, 512, 100.5, 0.201, 0.020},
                                       {8, 512, 100.5, 0.2, 0.0201, 2},
                                       {16, 512, 102, 0.01, 0.001}};
  EXPECT_EQ(ranked(results, true).order(), (Degrees{4, 8, 2, 1, 16}));
  EXPECT_EQ(ranked(results, true).ranking.as_fast(), 4);
  EXPECT_EQ(ranked(results, false).order(), (Degrees{1, 4, 8, 2, 16}));
}

TEST(ServingRanking, AListedPlanStandsForItsKind) {
  const std::vector<Result> results = {
      {1, 4096, 100}, {1, 1024, 100}, {1, 2048, 100, 0.2}, {2, 512, 103}, {2, 256, 106}};
  const std::vector<std::size_t> with_1024_and_512 = {1, 3};  // as good as with 4096
  EXPECT_EQ(ranked(results, true).ranking.list(), with_1024_and_512);
}

// A bound leaves out what could not be listed, and nothing else.
TEST(ServingRanking, BoundsLeaveOutWhatCannotBeListed) {
  const std::vector<Result> results = {{1, 512, 100}, {1, 1024, 101}, {2, 512, 110}};
  for (const bool over_time : {false, true}) {
    const double slack = over_time ? 1.01 : 1;
    EXPECT_LT(ranked(results, over_time, 1).ranking.limit(), Seconds(100 * slack + 1e-3));
    EXPECT_GE(ranked(results, over_time, 1).ranking.limit(), Seconds(100 * slack - 1e-3));
    EXPECT_LT(ranked(results, over_time, 2).ranking.limit(), Seconds(110 * slack + 1e-3));
    EXPECT_GE(ranked(results, over_time, 2).ranking.limit(), Seconds(110 * slack - 1e-3));
    EXPECT_GE(ranked(results, over_time, 3).ranking.limit(), Seconds(1e9));
  }
}

}  // namespace
}  // namespace orrery::search
