// SPDX-License-Identifier: Apache-2.0
// A search of a mixed cluster that was stopped anywhere and goes on from its checkpoint ends like
// one that was not; checkpoints of other searches, and damaged or hostile ones, are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "search/mixed/checkpoint.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery::search {
namespace {

using orrery::testing::message_of;
using ::testing::HasSubstr;

constexpr std::int64_t kMostBytes = 1LL << 26;

plan::MixedPlan two_kinds(std::int64_t batch = 32) {
  Problem problem;
  problem.network = "gpt3-125m";
  problem.cluster = "hgx-h100:1+dgx-a100:1";
  problem.batch = batch;
  return mixed_base_plan(problem);
}

Options few_kinds(int jobs = 1) {
  Options options;
  options.jobs = jobs;
  options.interval_draws = 0;
  options.constraints.fix("tp=1,cp=1,micro_batch=1,schedule=1f1b");
  options.constraints.forbid("recompute=full");
  return options;
}

std::string answer(const MixedOutcome& outcome) {
  std::string text;
  for (const std::int64_t count :
       {outcome.plans, outcome.pruned, outcome.infeasible, outcome.simulated, outcome.unexplored}) {
    text += std::to_string(count) + " ";
  }
  text += std::to_string(outcome.lower_bound.value()) + " " + std::to_string(outcome.gap_fraction) +
          outcome.closest_overflow;
  const auto add = [&](const MixedFound& found) {
    text += "\n" + plan::to_json(found.plan).dump(-1) +
            std::to_string(found.simulation.iteration_time.value());
  };
  if (outcome.best) {
    add(*outcome.best);
  }
  for (const MixedFound& found : outcome.alternatives) {
    add(found);
  }
  return text;
}

std::string file_of(const std::string& name) { return ::testing::TempDir() + "mixed_" + name; }

// However short the time of a run is, one that goes on evaluates a batch.
TEST(MixedCheckpoint, ComesForwardUnderAnyTimeLimit) {
  const plan::MixedPlan base = two_kinds();
  const std::string whole = answer(search_mixed(base, few_kinds()));
  Options options = few_kinds();
  options.checkpoint = file_of("limited");
  options.time_limit = Seconds(1e-9);
  MixedOutcome outcome = search_mixed(base, options);
  int runs = 1;
  for (; outcome.timed_out && runs < 1000; ++runs) {
    options.resume = options.checkpoint;
    outcome = search_mixed(base, options);
  }
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_GT(runs, 3);
  EXPECT_EQ(answer(outcome), whole);
}

TEST(MixedCheckpoint, GoesOnFromEveryBatch) {
  const plan::MixedPlan base = two_kinds();
  const std::string whole = answer(search_mixed(base, few_kinds()));
  Options options = few_kinds();
  options.checkpoint = file_of("all");
  options.checkpoint_every = Seconds(0);
  std::vector<std::string> states;
  EXPECT_EQ(
      answer(search_mixed(base, options,
                          [&](const ProgressReport&) {
                            if (std::filesystem::exists(options.checkpoint)) {  // it has begun
                              states.push_back(read_file(options.checkpoint, kMostBytes));
                            }
                          })),
      whole);
  ASSERT_GE(states.size(), 4U);
  for (std::size_t state = 0; state < states.size(); state += states.size() / 4) {
    Options again = few_kinds(state % 2 == 0 ? 1 : 2);
    again.resume = file_of("state");
    write_file_atomically(again.resume, states[state]);
    EXPECT_EQ(answer(search_mixed(base, again)), whole) << state;
  }
}

// In the middle of batches, too: what there is of those is not kept.
TEST(MixedCheckpoint, GoesOnFromWhereItWasStopped) {
  const plan::MixedPlan base = two_kinds();
  int asked = 0;
  Options counts = few_kinds();
  counts.stop = [&asked] { return ++asked < 0; };
  const std::string whole = answer(search_mixed(base, counts));
  int within = 0;  // after the first plan
  for (int share = 1; share < 16; ++share) {
    Options options = few_kinds();
    options.checkpoint = file_of("stopped");
    int left = asked * share / 16;
    options.stop = [&left] { return left-- <= 0; };
    const MixedOutcome early = search_mixed(base, options);
    within += early.interrupted && early.simulated > 0 ? 1 : 0;
    Options again = few_kinds();
    again.resume = options.checkpoint;
    EXPECT_EQ(answer(search_mixed(base, again)), whole) << share;
  }
  EXPECT_GE(within, 2) << asked;
}

// Whoever ends a search that goes on before its arrangements are listed keeps what there was.
TEST(MixedCheckpoint, AnEarlyEndOfTheListLeavesTheFileAsItWas) {
  const plan::MixedPlan base = two_kinds();
  const std::string whole = answer(search_mixed(base, few_kinds()));
  Options options = few_kinds();
  options.checkpoint = file_of("early");
  (void)search_mixed(base, options);
  const std::string before = read_file(options.checkpoint, kMostBytes);
  options.resume = options.checkpoint;
  options.stop = [] { return true; };
  const MixedOutcome early = search_mixed(base, options);
  EXPECT_TRUE(early.interrupted);
  EXPECT_FALSE(early.whole_space);
  EXPECT_EQ(early.lower_bound, Seconds());
  EXPECT_EQ(read_file(options.checkpoint, kMostBytes), before);
  options.stop = {};
  EXPECT_EQ(answer(search_mixed(base, options)), whole);
}

TEST(MixedCheckpoint, OtherSearchesAreRefused) {
  const plan::MixedPlan base = two_kinds();
  Options options = few_kinds();
  options.checkpoint = file_of("kept");
  (void)search_mixed(base, options);
  const auto refused = [&](const plan::MixedPlan& other, const auto& change) {
    Options again = few_kinds();
    again.resume = options.checkpoint;
    change(again);
    return message_of([&] { (void)search_mixed(other, again); });
  };
  EXPECT_THAT(refused(two_kinds(64), [](Options&) {}), HasSubstr("workload"));
  EXPECT_THAT(refused(base, [](Options& again) { again.constraints.fix("pp=2"); }),
              HasSubstr("--fix"));
  EXPECT_THAT(refused(base, [](Options& again) { again.top = 2; }), HasSubstr("--top"));
  Problem problem;
  problem.network = "gpt3-125m";
  problem.cluster = "hgx-h100:1+dgx-a100:2";
  problem.batch = 32;
  EXPECT_THAT(refused(mixed_base_plan(problem), [](Options&) {}), HasSubstr("cluster"));
}

TEST(MixedCheckpoint, NodesThatTheSpaceHasNotAreRefused) {
  const plan::MixedPlan base = two_kinds();
  const Options options = few_kinds();
  MixedWorker worker(base, options.constraints);
  const MixedNode root = worker.root(0, true);
  const auto read_back = [&](const MixedNode& node) {
    MixedState state;
    state.push(node);
    ByteWriter out;
    state.write(out);
    ByteReader in(out.bytes(), "state");
    MixedState again;
    again.read(in, worker);
    return again.heap.top();
  };
  EXPECT_EQ(read_back(root).plans, root.plans);
  const auto spoilt = [&](const auto& change) {
    MixedNode node = root;
    change(node);
    return message_of([&] { (void)read_back(node); });
  };
  const auto is_refused = HasSubstr("not in this space");
  EXPECT_THAT(spoilt([](MixedNode& node) { node.arrangement = 1 << 20; }), is_refused);
  EXPECT_THAT(spoilt([](MixedNode& node) { node.layout = 1 << 20; }), is_refused);
  EXPECT_THAT(spoilt([](MixedNode& node) { node.cut = 0; }), is_refused);
  EXPECT_THAT(spoilt([](MixedNode& node) { node.layout = 0, node.cut = 1 << 20; }), is_refused);
  EXPECT_THAT(spoilt([](MixedNode& node) { node.layout = 0, node.cut = 0, node.zero = 0; }),
              is_refused);
  EXPECT_THAT(spoilt([](MixedNode& node) { node.plans = -1; }), is_refused);
}

}  // namespace
}  // namespace orrery::search
