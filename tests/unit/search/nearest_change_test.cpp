// SPDX-License-Identifier: Apache-2.0
// What is said when nothing fits.
#include "search/nearest_change.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "search/nearest_parts.hpp"
#include "tests/folders.hpp"
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

// A line for every change, each of which must help.
std::string text_of(const NearestChanges& changes) {
  std::string all;
  for (const NearestChange& change : changes.found) {
    all += change.change + "\n";
    EXPECT_FALSE(plan::simulate(change.plan).does_not_fit) << change.change;
  }
  return all;
}

std::string changes_of(const Problem& problem, const plan::Plan& base, const Options& options) {
  const Outcome nothing = search(base, options);
  EXPECT_FALSE(nothing.best);
  return text_of(nearest_changes(problem, base, options, nothing));
}

TEST(NearestChangeTest, EveryChangeLeadsToAPlanThatFits) {
  const Problem problem = large_problem();
  const plan::Plan base = base_plan(problem);
  const Options options =
      constrained_options("tp=1,pp=1,cp=1,zero=0,recompute=none,micro_batch=2,schedule=1f1b");
  const Outcome nothing = search(base, options);
  ASSERT_FALSE(nothing.best);
  EXPECT_THAT(nothing.closest_overflow, testing::HasSubstr("too much"));
  const NearestChanges changes = nearest_changes(problem, base, options, nothing);
  EXPECT_FALSE(changes.found.empty());
  const std::string all = text_of(changes);
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
  const std::string all = changes_of(problem, tight, options);
  EXPECT_THAT(all, testing::HasSubstr("micro_batch=1 instead of micro_batch=2"));
  EXPECT_THAT(all, testing::HasSubstr("instead of recompute=none"));
  EXPECT_THAT(all, testing::HasSubstr("no memory reserve"));
  EXPECT_THAT(all, testing::HasSubstr("2 nodes (16 GPUs) instead of 1"));
}

// The first plan found without a fixed value may have one far from it.
TEST(NearestChangeTest, ValuesThatAreNearerAreTried) {
  Problem problem;
  problem.network = "llama3-8b";
  problem.cluster = "hgx-h100:1";
  problem.batch = 512;
  const std::string batches =
      changes_of(problem, base_plan(problem), constrained_options("micro_batch=16,tp=1,cp=1"));
  EXPECT_THAT(batches, testing::HasSubstr("micro_batch=8 instead of micro_batch=16"));
  problem.batch = 64;
  const std::string degrees =
      changes_of(problem, base_plan(problem), constrained_options("zero=0,pp=1,cp=1,tp=1"));
  EXPECT_THAT(degrees, testing::HasSubstr("zero=1 instead of zero=0"));
  EXPECT_THAT(degrees, testing::HasSubstr("pp=2 instead of pp=1"));
  EXPECT_THAT(degrees, testing::HasSubstr("tp=2 instead of tp=1"));
}

TEST(NearestChangeTest, NearerValuesAreThoseBetween) {
  Problem problem = large_problem();
  problem.batch = 48;
  plan::Plan found = base_plan(problem);
  found.blocks = {{static_cast<int>(found.network.chain.size()), {}}};
  found.stage_blocks = {static_cast<int>(found.network.chain.size())};
  found.micro_batch = 1;
  found.blocks.front().layout.tp = 8;
  found.blocks.front().layout.recompute = plan::Recompute::Full;
  EXPECT_THAT(nearer_values("micro_batch=16", found, {8, 8}),
              testing::ElementsAre("micro_batch=12", "micro_batch=8", "micro_batch=6",
                                   "micro_batch=4", "micro_batch=3", "micro_batch=2"));
  EXPECT_THAT(nearer_values("tp=1", found, {8, 8}), testing::ElementsAre("tp=2", "tp=4"));
  EXPECT_THAT(nearer_values("recompute=none", found, {8, 8}),
              testing::ElementsAre("recompute=selective"));
  EXPECT_THAT(nearer_values("schedule=gpipe", found, {8, 8}), testing::IsEmpty());
  EXPECT_THAT(nearer_values("recompute=norms", found, {8, 8}), testing::IsEmpty());
}

// "No plan divides it" is no change; a file that is gone is what is wrong.
TEST(NearestChangeTest, AFileThatIsGoneIsAnError) {
  const std::string file = testing::TempDir() + "/gone.json";
  std::filesystem::copy_file(source_folder() / "models/zoo/llama2-7b.json", file);
  Problem problem = large_problem();
  problem.network = file;
  const plan::Plan base = base_plan(problem);
  const Options options = constrained_options("tp=1,pp=1,cp=1,zero=0,recompute=none");
  const Outcome nothing = search(base, options);
  ASSERT_FALSE(nothing.best);
  std::filesystem::remove(file);
  EXPECT_THROW((void)nearest_changes(problem, base, options, nothing), Error);
}

TEST(NearestChangeTest, NodesThatWereSetMayBeMore) {
  Problem problem = large_problem();
  problem.cluster = "dgx-a100:4";
  problem.settings = {"nodes=1", "gpu.memory=16 GB"};
  const plan::Plan base = base_plan(problem);
  const Options options = constrained_options("zero=3,recompute=none,micro_batch=1");
  const std::string all = changes_of(problem, base, options);
  EXPECT_THAT(all, testing::HasSubstr("2 nodes (16 GPUs) instead of 1"));
  EXPECT_THAT(all, testing::HasSubstr("instead of a100-sxm4-80gb (14.9 GiB)"));
}

// Plans that no seed of the search is near are found, too.
TEST(NearestChangeTest, StatesOnTheHostAreFound) {
  Problem problem = large_problem();
  problem.settings = {"gpu.memory=10 GiB"};
  const Options options = constrained_options("dp=8,zero=3");
  const std::string all = changes_of(problem, base_plan(problem), options);
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
  const std::string all = changes_of(problem, base_plan(problem), options);
  EXPECT_THAT(all, testing::HasSubstr("3 nodes (24 GPUs) instead of 1"));
}

TEST(NearestChangeTest, NumbersOfNodesRise) {
  EXPECT_THAT(node_doublings(3), testing::ElementsAre(6, 12, 24, 48, 96, 192));
  EXPECT_THAT(node_counts_below(2), testing::IsEmpty());
  EXPECT_THAT(node_counts_below(8), testing::ElementsAre(5, 6, 7));
  EXPECT_THAT(node_counts_below(32), testing::ElementsAre(18, 20, 22, 24, 26, 28, 30));
}

NearestChanges changes_of_llama(const std::string& cluster, const Options& options) {
  Problem problem;
  problem.network = "llama3-405b";
  problem.cluster = cluster;
  problem.batch = 512;
  const plan::Plan base = base_plan(problem);
  const Outcome nothing = search(base, options);
  EXPECT_FALSE(nothing.best);
  return nearest_changes(problem, base, options, nothing);
}

// Numbers without a plan cost much work: ten and eleven nodes take it from no other.
TEST(NearestChangeTest, TheFewestNodesAreSearchedToTheirEnd) {
  const NearestChanges changes = changes_of_llama("dgx-a100:9", Options());
  EXPECT_THAT(text_of(changes), testing::HasSubstr("12 nodes (96 GPUs) instead of 9"));
  EXPECT_THAT(changes.left_open, testing::Not(testing::Contains(testing::HasSubstr("nodes"))));
}

// Where that takes too much, fewer may do.
TEST(NearestChangeTest, FewerNodesThatWereNotSearchedToTheirEndAreLeftOpen) {
  const NearestChanges changes =
      changes_of_llama("dgx-a100:9", constrained_options("recompute=none"));
  EXPECT_THAT(text_of(changes), testing::HasSubstr("16 nodes (128 GPUs) instead of 9"));
  EXPECT_THAT(changes.left_open, testing::Contains("fewer than 16 nodes"));
}

Problem short_of_memory() {
  Problem problem;
  problem.network = "mixtral-8x7b";
  problem.cluster = "rtx-3090-8:1";
  problem.batch = 64;
  problem.settings = {"gpu.memory=8 GiB"};
  return problem;
}

// The closest plan says how much is needed, so that no time is spent on 20 GPUs that have less.
TEST(NearestChangeTest, TheSmallestGpuThatTakesThePlanIsFound) {
  const Problem problem = short_of_memory();
  const plan::Plan base = base_plan(problem);
  const Options options = constrained_options("dp=1");
  const Outcome nothing = search(base, options);
  ASSERT_TRUE(nothing.closest);
  EXPECT_TRUE(plan::simulate(*nothing.closest).does_not_fit);
  const NearestChanges changes = nearest_changes(problem, base, options, nothing);
  EXPECT_THAT(text_of(changes), testing::HasSubstr("h200-sxm5-141gb (140 GiB) instead of"));
  EXPECT_THAT(changes.left_open, testing::Not(testing::Contains("other GPUs")));
}

// After an early end what the closest plan says costs next to nothing; nothing else is searched.
TEST(NearestChangeTest, AStoppedSearchNamesAGpuAlone) {
  const Problem problem = short_of_memory();
  const plan::Plan base = base_plan(problem);
  const Options options = constrained_options("dp=1");
  Outcome stopped = search(base, options);
  stopped.timed_out = true;
  const NearestChanges changes = nearest_changes(problem, base, options, stopped);
  EXPECT_THAT(text_of(changes), testing::EndsWith("(140 GiB) instead of rtx-3090 (8 GiB)\n"));
  EXPECT_EQ(changes.found.size(), 1U);
  stopped.closest.reset();
  EXPECT_TRUE(nearest_changes(problem, base, options, stopped).found.empty());
}

// A change is searched for what the time limit has left.
TEST(NearestChangeTest, ATimeLimitHoldsForTheChangesToo) {
  Options options;
  options.time_limit = Seconds(5000);
  EXPECT_LE(Deadline(options, Seconds(4960)).left(), Seconds(40));
  EXPECT_GT(Deadline(options, Seconds(1000)).left(), Seconds(2000));
  EXPECT_LE(Deadline(options, Seconds(9000)).left(), Seconds(1));  // a second in any case
  EXPECT_GT(Deadline(options, Seconds(9000)).left(), Seconds(-1000));
  const Effort effort(1'000, Deadline(options, Seconds(4960)));
  EXPECT_LE(effort.until_first_plan(options, 1'000).time_limit, Seconds(40));
  EXPECT_FALSE(std::isfinite(Effort(1'000).until_first_plan(options, 1'000).time_limit.value()));
  options.time_limit = Seconds();
  EXPECT_FALSE(Deadline(options, Seconds(1e9)).over());
}

// A search ends after so much work, on any machine at the same place.
TEST(NearestChangeTest, WorkIsCounted) {
  const Problem problem = short_of_memory();
  Options options = constrained_options("dp=1");
  options.most_work = 2'000;
  const Outcome ended = search(base_plan(problem), options);
  EXPECT_TRUE(ended.timed_out);
  EXPECT_GE(ended.work, options.most_work);
  options.jobs = 2;
  const Outcome again = search(base_plan(problem), options);
  EXPECT_EQ(ended.work, again.work);
  EXPECT_EQ(ended.unexplored, again.unexplored);
}

// Replays of plans that were found count, too: they take longer than all else where few of them
// fit.
TEST(NearestChangeTest, ReplaysAreWork) {
  Problem problem = large_problem();
  problem.settings = {"gpu.memory=24 GB"};
  const Options options = constrained_options("tp=8,cp=1,zero=3,recompute=none,micro_batch=1");
  const Outcome found = search(base_plan(problem), options);
  ASSERT_TRUE(found.best);
  EXPECT_GE(found.work, 8000U);
}

// Eight nodes cannot hold what 16 hold.
TEST(NearestChangeTest, StatesThatAreHeldNowhereAreNotSearched) {
  const plan::Plan base = base_plan(short_of_memory());
  const double states = states_once(base).bytes().value();
  EXPECT_GT(states, 8 * base.cluster.node.gpus * base.cluster.gpu.memory.bytes().value());
  EXPECT_LT(states, 16 * base.cluster.node.gpus * base.cluster.gpu.memory.bytes().value());
}

}  // namespace
}  // namespace orrery::search
