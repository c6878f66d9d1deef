// SPDX-License-Identifier: Apache-2.0
// What a plan is told that it would gain from is what the changed plan takes.
#include "plan/simulation/suggestions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

Plan mixture_over(int ep) {
  models::NetworkSpec spec = small_spec();
  spec.moe = {.experts = 64, .top_k = 8, .ffn_hidden = 512};
  Plan plan = small_plan(spec, "hgx-h100:2");
  plan.pp = 1;
  plan.dp = plan.cluster.num_gpus();
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout = {.ep = ep, .zero_stage = 1};
  check_plan(plan, "test");
  return plan;
}

TEST(Suggestions, OfDeduplicatedDispatchSayWhatItTakes) {
  Plan plan = mixture_over(16);
  const Simulation simulation = simulate(plan);
  const std::vector<Suggestion> list = suggestions(plan, simulation);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list.front().field, "deduplicated_dispatch");
  EXPECT_EQ(list.front().waited, simulation.breakdown.exposed_communication.at("ep"));
  EXPECT_LT(list.front().iteration_time, simulation.iteration_time);
  EXPECT_THAT(to_text(list.front(), simulation),
              testing::HasSubstr("--fix deduplicated_dispatch=true"));
  plan.execution.deduplicated_dispatch = true;
  const Simulation changed = simulate(plan);
  EXPECT_EQ(changed.iteration_time, list.front().iteration_time);
  EXPECT_TRUE(suggestions(plan, changed).empty());
}

TEST(Suggestions, NoneForExpertsOnANode) {
  const Plan plan = mixture_over(8);
  EXPECT_TRUE(suggestions(plan, simulate(plan)).empty());
}

// A wait of less than a twentieth of the iteration is not worth a remark.
TEST(Suggestions, NoneForShortWaits) {
  Plan plan = mixture_over(16);
  Simulation simulation = simulate(plan);
  simulation.breakdown.exposed_communication["ep"] = simulation.iteration_time * 0.04;
  EXPECT_TRUE(suggestions(plan, simulation).empty());
}

}  // namespace
}  // namespace orrery::plan
