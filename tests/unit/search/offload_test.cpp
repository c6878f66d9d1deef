// SPDX-License-Identifier: Apache-2.0
// Searches that may, or must, let tensors leave the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/error.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

Outcome find(const plan::Plan& base, const std::string& fix, bool allow) {
  Options options;
  options.constraints.fix(fix);
  if (allow) {
    options.constraints.allow("offload");
  }
  return search(base, options);
}

TEST(OffloadSearch, FixesTheHomesOfTensors) {
  const Outcome outcome =
      find(base_plan(),
           "dp=4,tp=1,pp=1,cp=1,zero=2,offload_optimizer=host,offload_gradients=host,"
           "offload_activations=0.25",
           false);
  ASSERT_TRUE(outcome.best.has_value());
  const plan::Offload& offload = outcome.best->plan.blocks.front().layout.offload;
  EXPECT_EQ(offload.optimizer, plan::Tier::Host);
  EXPECT_EQ(offload.gradients, plan::Tier::Host);
  EXPECT_EQ(offload.activations, 0.25);
  EXPECT_GT(outcome.best->simulation.host_per_node.value(), 0);
}

TEST(OffloadSearch, FindsAPlanWhereNoneFitsTheDevices) {
  plan::Plan base = base_plan();
  const std::string fix = "dp=4,tp=1,pp=1,cp=1,micro_batch=2,recompute=none";
  // Just less memory than the best plan on the devices needs.
  const Outcome roomy = find(base, fix, false);
  ASSERT_TRUE(roomy.best.has_value());
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const int zero : {1, 2, 3}) {
    const Outcome one = find(base, fix + ",zero=" + std::to_string(zero), false);
    ASSERT_TRUE(one.best.has_value());
    least = std::min(least, one.best->simulation.memory.front().total().value());
  }
  base.cluster.gpu.memory = ByteCount(least - (64LL << 20));
  EXPECT_FALSE(find(base, fix, false).best.has_value());
  const Outcome tight = find(base, fix, true);
  ASSERT_TRUE(tight.best.has_value());
  EXPECT_TRUE(tight.best->plan.blocks.front().layout.offload.any());
}

TEST(OffloadSearch, LeavesTensorsAloneWhereTheyFit) {
  const std::string fix = "dp=4,tp=1,pp=1,cp=1,micro_batch=2";
  const Outcome alone = find(base_plan(), fix, false);
  const Outcome allowed = find(base_plan(), fix, true);
  ASSERT_TRUE(alone.best.has_value() && allowed.best.has_value());
  EXPECT_LE(allowed.best->simulation.iteration_time, alone.best->simulation.iteration_time);
  EXPECT_GT(allowed.plans, alone.plans);
}

TEST(OffloadSearch, NoPlanHasWhatIsForbidden) {
  const plan::Plan base = base_plan({.spec = small_spec(4), .batch = 8});
  Options all;
  all.constraints.fix("dp=4,tp=1,pp=1,cp=1,micro_batch=2");
  all.constraints.allow("offload");
  const auto count = [&](const std::string& forbidden, auto has) {
    Constraints constraints = all.constraints;
    constraints.forbid(forbidden);
    std::int64_t plans = 0;
    enumerate(base, constraints,
              [&](const plan::Plan& plan, const plan::Simulation&, plan::Simulator&) {
                ++plans;
                EXPECT_FALSE(has(plan.blocks.front().layout.offload)) << forbidden;
              });
    EXPECT_LT(plans, enumerate(base, all.constraints).plans) << forbidden;
    return plans;
  };
  using plan::Offload;
  using plan::Tier;
  EXPECT_GT(
      count("offload_optimizer=host", [](const Offload& o) { return o.optimizer == Tier::Host; }),
      0);
  EXPECT_GT(count("offload_optimizer=device",
                  [](const Offload& o) { return o.optimizer == Tier::Device; }),
            0);
  EXPECT_GT(count("offload_gradients=device",
                  [](const Offload& o) { return o.gradients == Tier::Device; }),
            0);
  EXPECT_GT(count("offload_activations=1", [](const Offload& o) { return o.activations == 1; }), 0);
  EXPECT_GT(count("offload_activations=0", [](const Offload& o) { return o.activations == 0; }), 0);
}

// With just too little memory to keep everything, sending the tensors of one costly group while
// the rest is kept or recomputed is faster than any share of all tensors.
std::string problem_of(const std::string& fix, bool allow) {
  try {
    find(base_plan(), fix, allow);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Gradients that leave want an optimizer that does: the search moves it where it may, and says so
// where it may not.
TEST(OffloadSearch, TheOptimizerGoesWhereWhatItUpdatesGoes) {
  const std::string degrees = "dp=4,tp=1,pp=1,cp=1,micro_batch=2,";
  for (const char* fields : {"offload_gradients=host", "zero=3,offload_parameters=host"}) {
    const Outcome outcome = find(base_plan(), degrees + fields, true);
    ASSERT_TRUE(outcome.best.has_value()) << fields;
    const plan::Offload& offload = outcome.best->plan.blocks.front().layout.offload;
    EXPECT_EQ(offload.optimizer, plan::Tier::Host) << fields;
    EXPECT_THAT(problem_of(degrees + fields, false),
                testing::HasSubstr("add offload_optimizer=host"));
    EXPECT_THAT(problem_of(degrees + fields + ",offload_optimizer=device", true),
                testing::HasSubstr("set offload_optimizer to host or disk"));
  }
  // Nothing fits, and no neighbour whose optimizer stays is offered.
  plan::Plan small = base_plan();
  small.cluster.gpu.memory = ByteCount(64LL << 20);
  const auto unfit = [&] { find(small, degrees + "zero=0,offload_parameters=host", false); };
  EXPECT_THROW(unfit(), Error);
  // Gradients that stay do not keep the optimizer from leaving.
  const Outcome stay = find(base_plan(), degrees + "zero=2,offload_gradients=device", true);
  const Outcome alone = find(base_plan(), degrees + "zero=2,offload_gradients=device", false);
  EXPECT_GT(stay.plans, alone.plans);
}

TEST(OffloadSearch, ATierOfNothingIsNamed) {
  EXPECT_THAT(problem_of("offload_activations_tier=disk", false),
              testing::HasSubstr("says where tensors leave the device, but none do"));
}

TEST(OffloadSearch, ChoosesByOperator) {
  plan::Plan base = base_plan({.spec = small_spec(8), .batch = 16});
  Options shares;
  shares.constraints.fix("dp=4,tp=1,pp=1,cp=1,micro_batch=4,zero=1");
  shares.constraints.forbid("recompute=full");
  shares.constraints.allow("offload");
  Options operators = shares;
  operators.constraints.allow("operators");
  const Outcome roomy = search(base, shares);
  ASSERT_TRUE(roomy.best.has_value());
  const plan::StageMemory whole = roomy.best->simulation.memory.front();
  base.cluster.gpu.memory = ByteCount(whole.total().value() - whole.activations.value() / 8);
  const Outcome by_share = search(base, shares);
  const Outcome by_operator = search(base, operators);
  ASSERT_TRUE(by_share.best.has_value() && by_operator.best.has_value());
  EXPECT_GT(by_operator.plans, by_share.plans);
  const Exhaustive all = enumerate(base, operators.constraints);
  EXPECT_EQ(by_operator.plans, all.plans);
  EXPECT_EQ(by_operator.best->simulation.iteration_time, *all.best);
  EXPECT_LT(by_operator.best->simulation.iteration_time, by_share.best->simulation.iteration_time);
  const plan::BlockPlan& layout = by_operator.best->plan.blocks.front().layout;
  EXPECT_FALSE(layout.offload.activations_of.intersects(layout.recomputed));
}

TEST(OffloadSearch, FixesWhoseTensorsLeave) {
  const std::string fix = "dp=4,tp=1,pp=1,cp=1,zero=1,offload_activations_of=qkv+mlp-up";
  const Outcome outcome = find(base_plan(), fix + ",offload_activations=1", false);
  ASSERT_TRUE(outcome.best.has_value());
  const plan::BlockPlan& layout = outcome.best->plan.blocks.front().layout;
  EXPECT_EQ(layout.offload.activations_of.text(), "qkv+mlp-up");
  EXPECT_TRUE(layout.recompute == plan::Recompute::None);
  EXPECT_THROW(find(base_plan(), fix, false), Error);
}

TEST(OffloadSearch, NamesValuesThatItDoesNotKnow) {
  Constraints constraints;
  EXPECT_THROW(constraints.fix("offload_activations=1.5"), Error);
  EXPECT_THROW(constraints.fix("offload_optimizer=hots"), Error);
  EXPECT_THROW(constraints.fix("offload_activations_of=mlp-upp"), Error);
  EXPECT_THROW(constraints.fix("backward_prefetch=late"), Error);
  EXPECT_THROW(constraints.allow("offloading"), Error);
}

}  // namespace
}  // namespace orrery::search
