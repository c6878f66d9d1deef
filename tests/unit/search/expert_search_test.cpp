// SPDX-License-Identifier: Apache-2.0
// How a search lays experts on the ranks of the other layers.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/block_rules.hpp"
#include "search/tree/search.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

TEST(ExpertSearch, ExpertTensorDegreeCanBeFixed) {
  Options options;
  options.jobs = 1;
  options.constraints = fixed("expert_tp=1,tp=2,pp=1,cp=1");
  const Outcome outcome = search(base_plan({small_mixture()}), options);
  ASSERT_TRUE(outcome.best);
  EXPECT_EQ(outcome.best->plan.blocks.front().layout.expert_tp, 1);
}

// Whole experts or cut ones, whichever is faster: here tokens of a node with narrow experts.
TEST(ExpertSearch, ChoosesHowTensorRanksHoldExperts) {
  Shape shape{small_mixture()};
  shape.spec.moe.experts = 16;
  shape.spec.moe.ffn_hidden = 512;
  const plan::Plan base = base_plan(shape);
  const auto best = [&base](const char* fix) {
    Options options;
    options.jobs = 1;
    options.constraints = fixed(fix);
    const Outcome outcome = search(base, options);
    EXPECT_EQ(outcome.gap_fraction, 0.0);
    return outcome.best.value();
  };
  const Found cut = best("tp=4,expert_tp=0");
  const Found whole = best("tp=4,expert_tp=1");
  ASSERT_LT(whole.simulation.iteration_time, cut.simulation.iteration_time);
  const Found found = best("tp=4");
  EXPECT_EQ(found.simulation.iteration_time, whole.simulation.iteration_time);
  EXPECT_EQ(found.plan.blocks.front().layout.expert_tp, 1);
}

TEST(ExpertSearch, ExpertsMayBeSpreadOverContextRanks) {
  Options options;
  options.jobs = 1;
  options.constraints = fixed("expert_cp=1,tp=1,pp=1,cp=2,ep=4");
  const Outcome outcome = search(base_plan({small_mixture()}), options);
  ASSERT_TRUE(outcome.best);
  const plan::BlockPlan& layout = outcome.best->plan.blocks.front().layout;
  EXPECT_EQ(layout.expert_cp, 1);
  EXPECT_EQ(layout.ep, 4);
  options.constraints = fixed("expert_cp=1,tp=1,pp=1,cp=2,ep=1");
  EXPECT_THROW((void)search(base_plan({small_mixture()}), options), Error);
}

// On a part of tp, or of cp, as fixed.
TEST(ExpertSearch, ExpertsMayHaveCopiesInAReplica) {
  Options options;
  options.jobs = 1;
  const auto layout_of = [&](const char* fix) {
    options.constraints = fixed(fix);
    const Outcome outcome = search(base_plan({small_mixture()}), options);
    return outcome.best.value().plan.blocks.front().layout;
  };
  const plan::BlockPlan tensor = layout_of("expert_tp=1,tp=4,pp=1,cp=1,ep=2");
  EXPECT_EQ(tensor.ep, 2);
  EXPECT_TRUE(plan::splits_tensor_ranks(tensor));
  const plan::BlockPlan context = layout_of("expert_cp=1,tp=1,pp=1,cp=4,ep=2");
  EXPECT_EQ(context.ep, 2);
  EXPECT_TRUE(plan::splits_context_ranks(context));
  EXPECT_THROW((void)layout_of("expert_tp=1,tp=4,pp=1,cp=1,ep=2,tensor_parallel=2d"), Error);
}

// Where experts would lie means nothing to a network without them: it leaves out no plan.
TEST(ExpertSearch, PlacesOfExpertsLeaveOutNothingWithoutExperts) {
  Options options;
  options.jobs = 1;
  const plan::Plan base = base_plan(Shape{});
  const auto plans_of = [&](const char* fix) {
    options.constraints = fixed(fix);
    return search(base, options).plans;
  };
  const auto all = plans_of("tp=1");
  EXPECT_EQ(plans_of("tp=1,expert_cp=1"), all);
  EXPECT_EQ(plans_of("tp=1,expert_tp=2"), all);
  EXPECT_EQ(plans_of("tp=1,ep_inside=cp"), all);
}

}  // namespace
}  // namespace orrery::search
