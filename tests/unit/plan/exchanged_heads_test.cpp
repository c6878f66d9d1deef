// SPDX-License-Identifier: Apache-2.0
// What attention keeps where context ranks exchange positions for heads.
#include <gtest/gtest.h>

#include "tests/unit/plan/balanced_replay.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// Of 8 heads of keys and values each of 16 ranks attends with one, which it shares with another.
TEST(ExchangedHeads, AreKeptAsTheyCame) {
  const auto saved = [](ContextParallel context) {
    BlockPlan layout;
    layout.cp = 16;
    layout.context = context;
    Plan plan = one_stage_plan(layout, "llama3-8b");
    plan.dp = 1;
    expect_balanced(plan);
    BlockCosts costs(plan);
    return costs.of(plan.network.chain[1], layout, plan.micro_batch).saved.value();
  };
  const std::int64_t tokens = 2048;
  const std::int64_t result = 2 * tokens * 32 * 128 / 16;  // beside what the projection reads
  const std::int64_t keys_and_values = 2 * 2 * tokens * 8 * 128 / 16;
  EXPECT_EQ(saved(ContextParallel::Ulysses) - saved(ContextParallel::Ring),
            result + keys_and_values);
}

// A mix of ring and Ulysses exchanges its result back for the backward.
TEST(ExchangedHeads, OfAMixHaveOneResult) {
  for (const Recompute recompute :
       {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products}) {
    BlockPlan layout;
    layout.tp = 2;
    layout.sequence_parallel = true;
    layout.recompute = recompute;
    layout.cp = 4;
    const auto saved = [&](ContextParallel context) {
      layout.context = context;
      layout.ulysses_degree = context == ContextParallel::Mix ? 2 : 0;
      const Plan plan = one_stage_plan(layout, "llama3-8b");
      expect_balanced(plan);
      BlockCosts costs(plan);
      return costs.of(plan.network.chain[1], layout, plan.micro_batch).saved.value();
    };
    if (recompute == Recompute::None) {
      EXPECT_EQ(saved(ContextParallel::Mix), saved(ContextParallel::Ring));
    } else {
      saved(ContextParallel::Mix);
    }
  }
}

}  // namespace
}  // namespace orrery::plan
