// SPDX-License-Identifier: Apache-2.0
// What devices of a mixed cluster hold at least, each against its own pool's memory.
#include <gtest/gtest.h>

#include "search/mixed/memory_floor.hpp"
#include "search/mixed/search.hpp"

namespace orrery::search {
namespace {

plan::MixedPlan base_of(const std::string& memory_of_slow) {
  Problem problem;
  problem.network = "llama3-70b";
  problem.cluster = "hgx-h100:1+dgx-a100:1";
  problem.settings = {"dgx-a100.gpu.memory=" + memory_of_slow};
  problem.batch = 64;
  problem.sequence = 4096;
  return mixed_base_plan(problem);
}

// Of one replica whose first stage is on the slow pool, with so many blocks there.
ByteCount missing(const plan::MixedPlan& base, int blocks_of_slow) {
  Constraints constraints;
  constraints.fix("tp=8,cp=1,dp=1,pp=2,micro_batch=1,schedule=1f1b,recompute=full,zero=0");
  constraints.fix("sequence_parallel=true");
  plan::MixedSimulator simulator(base);
  MixedSpace space(base, constraints, simulator);
  std::vector<plan::Plan> views = {plan::pool_view(base, 0), plan::pool_view(base, 1)};
  for (const Arrangement& one : space.arrangements()) {
    if (one.runs.size() != 2 || one.groups.front().pools != std::vector<int>{1, 0}) {
      continue;
    }
    const MixedChoices choices = space.choices(one);
    const MixedLayout& layout = choices.layouts.front();
    const MixedFamily& family = choices.families.front();
    const int length = static_cast<int>(base.shape.network.chain.size());
    const std::vector<int> stages = {blocks_of_slow, length - blocks_of_slow};
    plan::MixedPlan plan = base;
    space.configure(one, layout, family, stages, "1f1b", 0, plan);
    const MixedMemoryFloor floor(plan, choices.zero_stages, views, simulator);
    const ByteCount missing = floor.excess_of_stages(family, stages);
    EXPECT_EQ(floor.excess_of_runs(one.runs, stages), missing);  // one stage each
    EXPECT_LE(floor.excess(), missing);
    const plan::MemoryVerdict verdict = simulator.fits(plan);
    EXPECT_LE(missing, verdict.excess);
    return missing;
  }
  ADD_FAILURE() << "no such arrangement";
  return {};
}

TEST(MixedMemoryFloor, IsAboutThePoolOfEachDevice) {
  const plan::MixedPlan alike = base_of("80 GiB");
  EXPECT_LE(missing(alike, 41), ByteCount());
  EXPECT_GT(missing(alike, 60), ByteCount());
  EXPECT_GT(missing(alike, 20), ByteCount());
  const plan::MixedPlan smaller = base_of("40 GiB");  // the largest GPU would take the stage
  EXPECT_GT(missing(smaller, 41), ByteCount());
  EXPECT_GT(missing(smaller, 41), missing(alike, 41));
}

// Most cuts are ruled out before they are nodes; what is left is the same answer.
TEST(MixedMemoryFloor, KeepsTheAnswerWhereMemoryIsTight) {
  const plan::MixedPlan base = base_of("80 GiB");
  Options options;
  options.interval_draws = 0;
  options.constraints.fix("tp=8,micro_batch=2,recompute=full,pp=2");
  options.constraints.choose_schedule("1f1b");
  const MixedOutcome outcome = search_mixed(base, options);
  ASSERT_TRUE(outcome.best);
  EXPECT_EQ(outcome.gap_fraction, 0);
  EXPECT_EQ(outcome.plans, outcome.simulated + outcome.pruned);
  EXPECT_GT(outcome.infeasible, outcome.plans / 2);
  EXPECT_EQ(outcome.best->plan.shape.stage_blocks, (std::vector<int>{41, 41}));
  EXPECT_EQ(verify(*outcome.best), "");
}

// A second shard is of what a node holds, not of all parameters: else no GPU had room for it.
TEST(MixedMemoryFloor, KnowsTheSecondShardOfANode) {
  Problem problem;
  problem.network = "llama-33b";
  problem.cluster = "dgx-a100-40:2+dgx-a100:2";
  problem.batch = 32;
  plan::MixedPlan base = mixed_base_plan(problem);
  base.shape.execution.hierarchical_gather = true;
  Options options;
  options.interval_draws = 0;
  options.constraints.fix("tp=1,cp=1,zero=3");
  options.constraints.choose_schedule("1f1b");
  const MixedOutcome outcome = search_mixed(base, options);
  options.constraints.fix("pp=1");
  const MixedOutcome whole = search_mixed(base, options);
  ASSERT_TRUE(outcome.best && whole.best);
  EXPECT_LE(outcome.best->simulation.iteration_time, whole.best->simulation.iteration_time);
}

}  // namespace
}  // namespace orrery::search
