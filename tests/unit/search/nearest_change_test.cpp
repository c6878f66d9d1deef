// SPDX-License-Identifier: Apache-2.0
// What is said when nothing fits.
#include "search/nearest_change.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

Problem large_problem() {
  Problem problem;
  problem.network = "llama2-7b";
  problem.cluster = "dgx-a100:1";
  problem.batch = 16;
  return problem;
}

Options constrained_options(const std::string& fix) {
  Options options;
  options.jobs = 1;
  options.constraints.fix(fix);
  return options;
}

TEST(NearestChangeTest, EveryChangeLeadsToAPlanThatFits) {
  const Problem problem = large_problem();
  const plan::Plan base = base_plan(problem);
  const Options options =
      constrained_options("tp=1,pp=1,cp=1,zero=0,recompute=none,micro_batch=2,schedule=1f1b");
  const Outcome nothing = search(base, options);
  ASSERT_FALSE(nothing.best);
  EXPECT_THAT(nothing.closest_overflow, testing::HasSubstr("too much"));
  const std::vector<NearestChange> changes = nearest_changes(problem, base, options);
  ASSERT_FALSE(changes.empty());
  std::string all;
  for (const NearestChange& change : changes) {
    all += change.change + "\n";
    EXPECT_FALSE(plan::simulate(change.plan).does_not_fit) << change.change;
  }
  EXPECT_THAT(all, testing::HasSubstr("instead of zero=0"));
  EXPECT_THAT(all, testing::HasSubstr("instead of a100-sxm4-80gb ("));
}

TEST(NearestChangeTest, RecomputationAndSmallerMicroBatchesAreFound) {
  Problem problem = large_problem();
  problem.batch = 64;
  const plan::Plan base = base_plan(problem);
  const Options options = constrained_options("tp=1,pp=1,cp=1,zero=3,recompute=none,micro_batch=2");
  plan::Plan tight = base;
  const Outcome roomy = search(base, options);
  ASSERT_TRUE(roomy.best);
  tight.memory_reserve =
      base.cluster.gpu.memory - roomy.best->simulation.memory.front().total() + ByteCount(1 << 20);
  ASSERT_FALSE(search(tight, options).best);
  std::string all;
  for (const NearestChange& change : nearest_changes(problem, tight, options)) {
    all += change.change + "\n";
  }
  EXPECT_THAT(all, testing::HasSubstr("micro_batch=1 instead of micro_batch=2"));
  EXPECT_THAT(all, testing::HasSubstr("instead of recompute=none"));
  EXPECT_THAT(all, testing::HasSubstr("no memory reserve"));
  EXPECT_THAT(all, testing::HasSubstr("2 nodes (16 GPUs) instead of 1"));
}

TEST(NearestChangeTest, NodesThatWereSetMayBeMore) {
  Problem problem = large_problem();
  problem.cluster = "dgx-a100:4";
  problem.settings = {"nodes=1", "gpu.memory=16 GB"};
  const plan::Plan base = base_plan(problem);
  const Options options = constrained_options("zero=3,recompute=none,micro_batch=1");
  ASSERT_FALSE(search(base, options).best);
  std::string all;
  for (const NearestChange& change : nearest_changes(problem, base, options)) {
    all += change.change + "\n";
    EXPECT_FALSE(plan::simulate(change.plan).does_not_fit) << change.change;
  }
  EXPECT_THAT(all, testing::HasSubstr("2 nodes (16 GPUs) instead of 1"));
  EXPECT_THAT(all, testing::HasSubstr("instead of a100-sxm4-80gb (14.9 GiB)"));
}

// Plans that no seed of the search is near are found, too.
TEST(NearestChangeTest, StatesOnTheHostAreFound) {
  Problem problem = large_problem();
  problem.settings = {"gpu.memory=10 GiB"};
  const Options options = constrained_options("dp=8,zero=3");
  ASSERT_FALSE(search(base_plan(problem), options).best);
  std::string all;
  for (const NearestChange& change : nearest_changes(problem, base_plan(problem), options)) {
    all += change.change + "\n";
  }
  EXPECT_THAT(all, testing::HasSubstr("--allow offload"));
}

// Three nodes do where two are too few: doubling again would ask for four.
TEST(NearestChangeTest, NoMoreNodesThanAreNeeded) {
  Problem problem = large_problem();
  problem.batch = 48;
  problem.settings = {"gpu.memory=8 GiB"};
  const Options options = constrained_options("tp=8,cp=1,zero=3,recompute=full,micro_batch=1");
  const auto fits = [&](int nodes) {
    Problem larger = problem;
    larger.settings.push_back(fmt::format("nodes={}", nodes));
    return search(base_plan(larger), options).best.has_value();
  };
  ASSERT_FALSE(fits(2));
  ASSERT_TRUE(fits(3));
  std::string all;
  for (const NearestChange& change : nearest_changes(problem, base_plan(problem), options)) {
    all += change.change + "\n";
  }
  EXPECT_THAT(all, testing::HasSubstr("3 nodes (24 GPUs) instead of 1"));
}

}  // namespace
}  // namespace orrery::search
