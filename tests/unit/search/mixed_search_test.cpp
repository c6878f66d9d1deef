// SPDX-License-Identifier: Apache-2.0
#include "search/mixed_search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "search/mixed_cuts.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery::search {
namespace {

using orrery::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Problem problem_on(const std::string& cluster) {
  Problem problem;
  problem.network = "llama3-8b";
  problem.cluster = cluster;
  problem.batch = 64;
  problem.sequence = 4096;
  return problem;
}

Options fixed(const std::string& text) {
  Options options;
  options.interval_draws = 0;
  if (!text.empty()) {
    options.constraints.fix(text);
  }
  return options;
}

TEST(MixedSearch, FasterGpusTakeMoreLayersOrMoreMicroBatches) {
  const plan::MixedPlan base = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  const MixedOutcome stages = search_mixed(base, fixed("dp=4,tp=2,pp=2,schedule=1f1b"));
  ASSERT_TRUE(stages.best.has_value());
  EXPECT_EQ(stages.gap_fraction, 0.0);
  const plan::MixedPlan& cut = stages.best->plan;
  ASSERT_EQ(cut.groups.size(), 1U);
  const std::size_t fast = cut.groups[0].pools[0] == 0 ? 0 : 1;
  EXPECT_GT(cut.shape.stage_blocks[fast], cut.shape.stage_blocks[1 - fast] * 3 / 2);

  const MixedOutcome replicas = search_mixed(base, fixed("dp=2,tp=8,pp=1"));
  ASSERT_TRUE(replicas.best.has_value());
  const plan::MixedPlan& shares = replicas.best->plan;
  ASSERT_EQ(shares.groups.size(), 2U);
  EXPECT_GT(shares.groups[0].micro_batches, shares.groups[1].micro_batches * 3 / 2);
  EXPECT_EQ(verify(*replicas.best), "");
}

// What more nodes of another kind buy, and that they are left idle where they only slow down.
TEST(MixedSearch, SlowNodesNeverHurt) {
  const auto time = [](const std::string& cluster) {
    return search_mixed(mixed_base_plan(problem_on(cluster)), fixed("schedule=1f1b,recompute=none"))
        .best->simulation.iteration_time;
  };
  const Seconds both = time("hgx-h100:1+dgx-a100:1");
  plan::MixedPlan alone = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  auto machine = std::make_shared<plan::MixedMachine>();
  machine->cluster = alone.machine->cluster;
  machine->cluster.pools.pop_back();
  machine->profiles = {alone.machine->profiles.front()};
  alone.machine = machine;
  const Seconds fast =
      search_mixed(alone, fixed("schedule=1f1b,recompute=none")).best->simulation.iteration_time;
  EXPECT_LT(both, fast * 0.9);
}

TEST(MixedSearch, ATimeLimitLeavesAGap) {
  Options options = fixed("");
  std::atomic<int> asked = 0;
  options.stop = [&asked] { return ++asked > 2000; };
  const MixedOutcome outcome =
      search_mixed(mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1")), options);
  EXPECT_TRUE(outcome.interrupted || outcome.gap_fraction == 0.0);
  EXPECT_EQ(outcome.plans, outcome.pruned + outcome.simulated + outcome.unexplored);
  if (outcome.best) {
    EXPECT_LE(outcome.lower_bound, outcome.best->simulation.iteration_time);
  }
}

TEST(MixedSearch, ChunksAreSearched) {
  const plan::MixedPlan base = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  const std::string rest = "dp=8,tp=1,pp=2";
  const auto time = [&](const std::string& chunks) {
    return search_mixed(base, fixed(rest + ",chunks=" + chunks)).best->simulation.iteration_time;
  };
  const MixedOutcome all = search_mixed(base, fixed(rest));
  EXPECT_EQ(all.best->simulation.iteration_time,
            std::min({time("1"), time("2"), time("4"), time("8")}));
  EXPECT_LT(all.best->simulation.iteration_time, time("1"));
  EXPECT_GT(all.best->plan.shape.chunks, 1);
  EXPECT_EQ(verify(*all.best), "");
}

TEST(MixedSearch, WhatItDoesNotHaveIsSaid) {
  const plan::MixedPlan base = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  EXPECT_THAT(message_of([&] { search_mixed(base, fixed("cp=2")); }), HasSubstr("cp = 1"));
  Options options = fixed("");
  options.constraints.allow("offload");
  EXPECT_THAT(message_of([&] { search_mixed(base, options); }), HasSubstr("no such choices"));
  Problem problem = problem_on("hgx-h100:1+dgx-a100:1");
  problem.settings = {"gpu.memory=40 GiB"};
  EXPECT_THAT(message_of([&] { mixed_base_plan(problem); }), HasSubstr("which pool?"));
}

TEST(MixedCuts, CompositionsAndTheirNumber) {
  EXPECT_THAT(compositions(4, {1, 2}), ElementsAre(ElementsAre(1, 3), ElementsAre(2, 2)));
  for (const std::vector<int>& least : {std::vector<int>{3}, {1, 1}, {2, 1, 3}, {1, 1, 1, 1}}) {
    for (int total = 1; total < 12; ++total) {
      EXPECT_EQ(static_cast<std::int64_t>(compositions(total, least).size()),
                num_compositions(total, least));
    }
  }
}

TEST(MixedCuts, TheSlowestStageIsAsFastAsPossible) {
  ChainTimes chain;
  chain.forward = {SimTime{0}};
  for (const int time : {5, 1, 1, 1, 4, 3}) {
    chain.forward.push_back(chain.forward.back() + SimTime{time});
  }
  chain.backward.assign(chain.forward.size(), SimTime{0});
  const auto alike = [&chain](std::size_t stages) {
    return std::vector<const ChainTimes*>(stages, &chain);
  };
  EXPECT_THAT(least_largest(alike(3), 0, 6), ElementsAre(2, 3, 1));
  EXPECT_THAT(least_largest(alike(6), 0, 6), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(least_largest(alike(2), 1, 4), ElementsAre(2, 1));
  ChainTimes slow = chain;  // three times
  for (SimTime& time : slow.forward) {
    time = time * 3;
  }
  EXPECT_THAT(least_largest({&chain, &slow}, 0, 6), ElementsAre(5, 1));
  EXPECT_THAT(least_largest({&slow, &chain}, 0, 6), ElementsAre(1, 5));
}

}  // namespace
}  // namespace orrery::search
