// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>

#include "search/mixed/cuts.hpp"
#include "search/mixed/nearest.hpp"
#include "search/mixed/search.hpp"
#include "search/tree/search.hpp"
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

Options fixed_options(const std::string& text) {
  Options options;
  options.interval_draws = 0;
  if (!text.empty()) {
    options.constraints.fix(text);
  }
  return options;
}

TEST(MixedSearch, FasterGpusTakeMoreLayersOrMoreMicroBatches) {
  const plan::MixedPlan base = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  const MixedOutcome stages = search_mixed(base, fixed_options("dp=4,tp=2,pp=2,schedule=1f1b"));
  ASSERT_TRUE(stages.best.has_value());
  EXPECT_EQ(stages.gap_fraction, 0.0);
  const plan::MixedPlan& cut = stages.best->plan;
  ASSERT_EQ(cut.groups.size(), 1U);
  const std::size_t fast = cut.groups[0].pools[0] == 0 ? 0 : 1;
  EXPECT_GT(cut.shape.stage_blocks[fast], cut.shape.stage_blocks[1 - fast] * 3 / 2);

  const MixedOutcome replicas = search_mixed(base, fixed_options("dp=2,tp=8,pp=1"));
  ASSERT_TRUE(replicas.best.has_value());
  const plan::MixedPlan& shares = replicas.best->plan;
  ASSERT_EQ(shares.groups.size(), 2U);
  EXPECT_GT(shares.groups[0].micro_batches, shares.groups[1].micro_batches * 3 / 2);
  EXPECT_EQ(verify(*replicas.best), "");
}

// The same GPUs as two pools give a space with more cuts, of which none is better here than the one
// that the homogeneous space has.
TEST(MixedSearch, TwoEqualPoolsAreNoFasterThanOne) {
  const std::string fixes = "tp=1,pp=8,dp=2,micro_batch=1,schedule=zb-2p,zero=1,recompute=none";
  Problem problem = problem_on(::testing::TempDir() + "two-equal-pools.json");
  std::ofstream(problem.cluster) << R"({"schema": "orrery-mixed-cluster", "version": 1,
      "name": "two", "pools": [{"name": "one", "cluster": "l40s-8:1"},
                               {"name": "other", "cluster": "l40s-8:1"}]})";
  problem.batch = 32;
  problem.sequence = 2048;
  const MixedOutcome mixed = search_mixed(mixed_base_plan(problem), fixed_options(fixes));
  problem.cluster = "l40s-8:2";
  const Outcome one = search(base_plan(problem), fixed_options(fixes));
  ASSERT_TRUE(mixed.best && one.best);
  EXPECT_LE(one.best->simulation.iteration_time, mixed.best->simulation.iteration_time);
}

// However short the time: a plan that fits, of a space that is all counted.
TEST(MixedSearch, AnEarlyEndHasAnAnswer) {
  const plan::MixedPlan base = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  Options options = fixed_options("schedule=1f1b");
  const MixedOutcome whole = search_mixed(base, options);
  for (const bool by_clock : {true, false}) {
    Options ended = options;
    if (by_clock) {
      ended.time_limit = Seconds(1e-9);
    } else {
      ended.stop = [] { return true; };
    }
    const MixedOutcome outcome = search_mixed(base, ended);
    ASSERT_TRUE(outcome.best.has_value());
    EXPECT_EQ(outcome.timed_out, by_clock);
    EXPECT_EQ(outcome.interrupted, !by_clock);
    EXPECT_EQ(outcome.gap_fraction, 1.0);
    EXPECT_EQ(outcome.lower_bound, Seconds());
    EXPECT_EQ(outcome.plans, whole.plans);
    EXPECT_EQ(outcome.simulated + outcome.pruned + outcome.unexplored, outcome.plans);
    EXPECT_GE(outcome.best->simulation.iteration_time, whole.best->simulation.iteration_time);
    EXPECT_EQ(verify(*outcome.best), "");
  }
}

// What more nodes of another kind buy, and that they are left idle where they only slow down.
TEST(MixedSearch, SlowNodesNeverHurt) {
  const auto time = [](const std::string& cluster) {
    return search_mixed(mixed_base_plan(problem_on(cluster)),
                        fixed_options("schedule=1f1b,recompute=none"))
        .best->simulation.iteration_time;
  };
  const Seconds both = time("hgx-h100:1+dgx-a100:1");
  plan::MixedPlan alone = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  auto machine = std::make_shared<plan::MixedMachine>();
  machine->cluster = alone.machine->cluster;
  machine->cluster.pools.pop_back();
  machine->profiles = {alone.machine->profiles.front()};
  alone.machine = machine;
  const Seconds fast = search_mixed(alone, fixed_options("schedule=1f1b,recompute=none"))
                           .best->simulation.iteration_time;
  EXPECT_LT(both, fast * 0.9);
}

// Long sequences: context ranks hold what one GPU cannot.
TEST(MixedSearch, ContextRanksAreSearched) {
  Problem problem = problem_on("hgx-h100:1+dgx-a100:1");
  problem.sequence = 131072;
  problem.batch = 4;
  const plan::MixedPlan base = mixed_base_plan(problem);
  const MixedOutcome one = search_mixed(base, fixed_options("cp=1,schedule=1f1b"));
  const MixedOutcome many = search_mixed(base, fixed_options("schedule=1f1b"));
  ASSERT_TRUE(many.best.has_value());
  EXPECT_GT(many.plans, one.plans);
  EXPECT_GT(many.best->plan.shape.blocks.front().layout.cp, 1);
  EXPECT_LT(many.best->simulation.iteration_time, one.best->simulation.iteration_time);
  // Over whole nodes where it is asked for.
  const MixedOutcome wide = search_mixed(mixed_base_plan(problem_on("hgx-h100:2+dgx-a100:2")),
                                         fixed_options("cp=16,tp=1,pp=2"));
  EXPECT_EQ(verify(*wide.best), "");
}

// Experts over the replicas of a stage, which then stand on one pool.
TEST(MixedSearch, ExpertsAreSearched) {
  Problem problem = problem_on("hgx-h100:1+dgx-a100:1");
  problem.network = "mixtral-8x7b";
  const MixedOutcome outcome =
      search_mixed(mixed_base_plan(problem), fixed_options("ep=8,tp=1,cp=1"));
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(outcome.best->plan.shape.blocks.front().layout.ep, 8);
  EXPECT_EQ(outcome.best->plan.groups.size(), 1U);
  EXPECT_EQ(verify(*outcome.best), "");
}

// Three stages on pools of eight GPUs: two whole replicas each, and one on what they leave.
TEST(MixedSearch, DividedReplicasBesideWholeOnes) {
  const plan::MixedPlan base = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  const MixedOutcome outcome =
      search_mixed(base, fixed_options("pp=3,tp=1,cp=1,dp=5,schedule=1f1b"));
  ASSERT_TRUE(outcome.best.has_value());
  const plan::MixedPlan& plan = outcome.best->plan;
  ASSERT_EQ(plan.groups.size(), 3U);
  EXPECT_EQ(plan.num_gpus(), 15);
  EXPECT_EQ(plan.groups[0].replicas, 2);
  EXPECT_EQ(plan.groups[1].replicas, 2);
  EXPECT_EQ(plan.groups[2].replicas, 1);
  EXPECT_NE(plan.groups[2].pools.front(), plan.groups[2].pools.back());
  EXPECT_EQ(verify(*outcome.best), "");
}

TEST(MixedSearch, NearestChangesWhenNothingFits) {
  Problem problem = problem_on("hgx-h100:1+dgx-a100:1");
  problem.network = "llama3-70b";
  problem.settings = {"hgx-h100.node.gpus=2", "dgx-a100.node.gpus=2"};
  const plan::MixedPlan base = mixed_base_plan(problem);
  const Options options =
      fixed_options("recompute=none,cp=1,tp=2,schedule=1f1b,micro_batch=1,zero=1");
  ASSERT_FALSE(search_mixed(base, options).best.has_value());
  std::string changes;
  for (const MixedNearestChange& change : nearest_changes(problem, base, options).found) {
    EXPECT_FALSE(plan::MixedSimulator(change.plan).run(change.plan).does_not_fit.has_value());
    changes += change.change + "\n";
  }
  EXPECT_THAT(changes, HasSubstr("nodes of hgx-h100 ("));
  EXPECT_THAT(changes, HasSubstr("nodes of dgx-a100 ("));
  const Options full = fixed_options("micro_batch=16,recompute=none,cp=1,tp=2,pp=2,schedule=1f1b");
  Problem smaller = problem_on("hgx-h100:1+dgx-a100:1");
  const plan::MixedPlan enough = mixed_base_plan(smaller);
  ASSERT_FALSE(search_mixed(enough, full).best.has_value());
  changes.clear();
  for (const MixedNearestChange& change : nearest_changes(smaller, enough, full).found) {
    changes += change.change + "\n";
  }
  EXPECT_THAT(changes, HasSubstr("instead of micro_batch=16"));
}

// Five nodes do where four are too few, whatever the machine and its threads.
TEST(MixedSearch, TheFewestNodesAreTheSameEveryTime) {
  Problem problem = problem_on("hgx-h100:1+dgx-a100:1");
  problem.settings = {"hgx-h100.gpu.memory=6GiB", "dgx-a100.gpu.memory=6GiB"};
  Options options;
  options.constraints.forbid("recompute=none,recompute=selective,cp=2,cp=4,cp=8");
  options.constraints.forbid("micro_batch=2,micro_batch=4,micro_batch=8,micro_batch=16");
  options.constraints.forbid("micro_batch=32,micro_batch=64");
  for (const int jobs : {1, 3}) {
    options.jobs = jobs;
    const MixedNearestChanges changes = nearest_changes(problem, mixed_base_plan(problem), options);
    std::string all;
    for (const MixedNearestChange& change : changes.found) {
      all += change.change + "\n";
    }
    EXPECT_THAT(all, HasSubstr("5 nodes of hgx-h100 (40 GPUs) instead of 1"));
    EXPECT_THAT(changes.left_open, testing::Not(testing::Contains(HasSubstr("nodes of hgx-h100"))));
  }
  problem.settings.emplace_back("hgx-h100.nodes=4");
  options.gap_fraction = 1;
  EXPECT_FALSE(search_mixed(mixed_base_plan(problem), options).best.has_value());
}

TEST(MixedSearch, SaysWhatItDoesNotSearch) {
  const plan::MixedPlan base = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  const auto told = [&](const std::string& text) {
    return message_of([&] { (void)search_mixed(base, fixed_options(text)); });
  };
  EXPECT_THAT(told("tensor_parallel=2d"), HasSubstr("has tensor_parallel = 1d"));
  EXPECT_THAT(told("shard_degree=4"), HasSubstr("no shard_degree"));
  EXPECT_THAT(told("stages=balanced"), HasSubstr("no stages"));
  EXPECT_THAT(told("context=mix"), HasSubstr("no context = mix"));
  EXPECT_THAT(told("slices=4"), HasSubstr("slices = 1"));
  for (const std::string name : {"dualpipe", "combined-1f1b", "layerpipe", "dip"}) {
    EXPECT_THAT(told("schedule=" + name), HasSubstr("\"" + name + "\" is no schedule of mixed"));
    EXPECT_THAT(told("schedule=" + name), HasSubstr("take one of 1f1b, "));
  }
}

TEST(MixedSearch, AFixedNumberWithoutPlansNamesTheNearestThatHasSome) {
  const plan::MixedPlan base = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  const auto told = [&](const std::string& fix) {
    return message_of([&] { (void)search_mixed(base, fixed_options(fix)); });
  };
  EXPECT_THAT(told("tp=5"), HasSubstr("has tp=5 (degrees"));
  EXPECT_THAT(told("tp=5"), HasSubstr("; tp = 4 would do)"));
  EXPECT_THAT(told("tp=8,pp=2,micro_batch=7"), HasSubstr("; micro_batch = 8 would do)"));
  EXPECT_THAT(told("tp=2,pp=64"), testing::Not(HasSubstr("would do")));
}

TEST(MixedSearch, ATimeLimitLeavesAGap) {
  Options options = fixed_options("");
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
    return search_mixed(base, fixed_options(rest + ",chunks=" + chunks))
        .best->simulation.iteration_time;
  };
  const MixedOutcome all = search_mixed(base, fixed_options(rest));
  EXPECT_EQ(all.best->simulation.iteration_time,
            std::min({time("1"), time("2"), time("4"), time("8")}));
  EXPECT_LT(all.best->simulation.iteration_time, time("1"));
  EXPECT_GT(all.best->plan.shape.chunks, 1);
  EXPECT_EQ(verify(*all.best), "");
}

TEST(MixedSearch, WhatItDoesNotHaveIsSaid) {
  const plan::MixedPlan base = mixed_base_plan(problem_on("hgx-h100:1+dgx-a100:1"));
  Options options = fixed_options("");
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

// Where there are too many arrangements, divided replicas beside whole ones are left out; no plan
// of these is faster than their bound.
void expect_bounded_where_left_out(const std::string& fixed) {
  Problem problem;
  problem.network = "gpt3-125m";
  problem.cluster = "hgx-h100:1+dgx-a100:1";
  problem.batch = 16;
  const plan::MixedPlan base = mixed_base_plan(problem);
  Constraints constraints;
  constraints.fix("cp=1,chunks=1,zero=0,schedule=1f1b," + fixed);
  plan::MixedSimulator simulator(base);
  MixedSpace whole(base, constraints, simulator);
  EXPECT_FALSE(whole.leaves_out());
  const std::size_t count = whole.arrangements().size();
  EXPECT_FALSE(MixedSpace(base, constraints, simulator, {}, count).leaves_out());
  MixedSpace part(base, constraints, simulator, {}, count - 1);
  EXPECT_TRUE(part.leaves_out());
  EXPECT_TRUE(MixedSpace(part, simulator).leaves_out());
  const Seconds bound = part.bound_left_out();
  EXPECT_GT(bound, Seconds());
  MixedSpace stopped(
      base, constraints, simulator, [] { return true; }, count - 1);
  EXPECT_FALSE(stopped.is_whole());
  EXPECT_EQ(stopped.bound_left_out(), bound);
  Seconds fastest(1e9);
  std::size_t beside = 0;
  plan::MixedPlan plan = base;
  for (const Arrangement& arrangement : whole.arrangements()) {
    const bool divides =
        arrangement.groups.back().pools.front() != arrangement.groups.back().pools.back();
    if (arrangement.groups.size() == 1 || !divides) {
      continue;  // stages, or replicas
    }
    ++beside;
    const MixedChoices choices = whole.choices(arrangement);
    for (const MixedLayout& layout : choices.layouts) {
      for (const MixedCut& cut : choices.cuts) {
        const std::vector<int> stages = whole.stages(arrangement, layout, choices.families[0], cut);
        whole.configure(arrangement, layout, choices.families[0], stages, "1f1b", 0, plan);
        fastest = std::min(fastest, simulator.run(plan).iteration_time);
      }
    }
  }
  EXPECT_GT(beside, 50U);
  EXPECT_EQ(part.arrangements().size(), count - beside);
  EXPECT_LE(bound, fastest);
  EXPECT_GT(bound, fastest * 0.1);  // few micro-batches leave large bubbles
}

TEST(MixedSearch, WhatIsTooMuchToListIsBounded) {
  expect_bounded_where_left_out("tp=1,recompute=none");
  expect_bounded_where_left_out("tp=1");
}

// Three kinds of nodes whose arrangements would take hundreds of gigabytes.
TEST(MixedSearch, LargeClustersHaveAnAnswerAndSayWhatIsLeftOut) {
  Problem problem;
  problem.network = "llama3-70b";
  problem.cluster = "hgx-h100:16+dgx-a100:16+l40s-8:8";
  problem.batch = 1024;
  Options options;
  options.interval_draws = 0;
  options.constraints.fix("tp=1,cp=1,micro_batch=1,schedule=1f1b,recompute=full,chunks=1,zero=1");
  options.most_work = 400'000;
  const MixedOutcome outcome = search_mixed(mixed_base_plan(problem), options);
  ASSERT_TRUE(outcome.best && outcome.bound_left_out);
  EXPECT_GT(*outcome.bound_left_out, Seconds());
  EXPECT_LE(outcome.lower_bound, *outcome.bound_left_out);
  EXPECT_LT(*outcome.bound_left_out, outcome.best->simulation.iteration_time);
}

}  // namespace
}  // namespace orrery::search
