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
      find(base_plan(), "dp=4,tp=1,pp=1,cp=1,zero=2,offload_optimizer=host,offload_gradients=host,"
                        "offload_activations=0.25", false);
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

TEST(OffloadSearch, NamesValuesThatItDoesNotKnow) {
  Constraints constraints;
  EXPECT_THROW(constraints.fix("offload_activations=1.5"), Error);
  EXPECT_THROW(constraints.fix("offload_optimizer=hots"), Error);
  EXPECT_THROW(constraints.fix("backward_prefetch=late"), Error);
  EXPECT_THROW(constraints.allow("offloading"), Error);
}

}  // namespace
}  // namespace orrery::search
