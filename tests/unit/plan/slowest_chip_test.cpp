// SPDX-License-Identifier: Apache-2.0
// A job runs at the pace of its slowest chip where a power limit sets the clock, nowhere else.
#include "plan/block/slowest_chip.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "plan/block/cost.hpp"
#include "tests/unit/plan/mixed_fixture.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// Expected largest of 2, 8 and 64 standard normals: 0.564, 1.424, 2.344; whiskers end at 2.698.
TEST(SlowestChip, IsTheExpectedExtreme) {
  constexpr double kDeviation = 0.08 / 5.396;
  EXPECT_EQ(hungriest_chip(1), 1.0);
  EXPECT_NEAR(hungriest_chip(2), 1 + 0.564 * kDeviation, 5e-4);
  EXPECT_NEAR(hungriest_chip(8), 1 + 1.424 * kDeviation, 5e-4);
  EXPECT_NEAR(hungriest_chip(64), 1 + 2.344 * kDeviation, 5e-4);
  EXPECT_NEAR(hungriest_chip(4096), 1.04, 1e-6);
  EXPECT_NEAR(hungriest_chip(1 << 20), 1.04, 1e-6);
}

double layer_seconds(const std::string& cluster) {
  models::NetworkSpec spec = small_spec();
  spec.hidden = 8192;
  spec.head_dim = 512;
  spec.ffn_hidden = 32768;
  const Plan plan = small_plan(spec, cluster);
  BlockCosts costs(plan);
  return costs.of(plan.network.chain[1], plan.layout_of(1), 8).forward.compute.value();
}

TEST(SlowestChip, SlowsProductsUnderAPowerLimit) {
  const double few = layer_seconds("hgx-h100:2");
  const double many = layer_seconds("hgx-h100:256");
  EXPECT_GT(many, few * 1.005);
  EXPECT_LT(many, few * hungriest_chip(2048));
  EXPECT_EQ(layer_seconds("dgx-a100:2"), layer_seconds("dgx-a100:256"));  // no limit known
}

// A step waits for chips of other pools, too: two pools of one kind are as slow as one of all.
TEST(SlowestChip, MayBeInAnotherPool) {
  const MixedPlan unlike = mixed_plan("hgx-h100:1+dgx-a100:3");
  MixedMachine alike = *unlike.machine;
  alike.cluster.pools[1].cluster = topologies::load_cluster("hgx-h100:3");
  alike.profiles[1] = alike.profiles[0];
  MixedPlan two = unlike;
  two.machine = std::make_shared<const MixedMachine>(alike);
  for (const std::size_t pool : {0UL, 1UL}) {
    EXPECT_EQ(pool_view(two, pool).gpus_alike, 32);
  }
  EXPECT_EQ(pool_view(unlike, 0).gpus_alike, 8);
  EXPECT_EQ(pool_view(unlike, 1).gpus_alike, 24);

  const auto seconds_of = [](const Plan& plan) {
    BlockCosts costs(plan);
    return costs.of(plan.network.chain[1], plan.layout_of(1), 8).forward.compute.value();
  };
  models::NetworkSpec spec = small_spec();
  spec.hidden = 8192;
  spec.head_dim = 512;
  spec.ffn_hidden = 32768;
  MixedPlan large = two;
  large.shape.network = models::build_network(spec, "test");
  EXPECT_EQ(seconds_of(pool_view(large, 0)), layer_seconds("hgx-h100:4"));
  EXPECT_GT(seconds_of(pool_view(large, 0)), layer_seconds("hgx-h100:1"));
}

}  // namespace
}  // namespace orrery::plan
