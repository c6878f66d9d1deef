// SPDX-License-Identifier: Apache-2.0
// What --set changes in a cluster and no time of the plan depends on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/document/idle_fields.hpp"
#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/plan_fields_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

Plan plan_with(const std::string& cluster, const std::string& setting) {
  Plan plan = plan_of(tiny_spec(), cluster, 2, {.tp = 2});
  plan.cluster = topologies::load_cluster(cluster, {setting});
  return plan;
}

TEST(IdleHardwareFields, APowerLimitIsIdleWhereNoEnergyIsKnown) {
  const Plan usual = plan_with("dgx-a100:2", "gpu.power_watts=400");
  const Plan starved = plan_with("dgx-a100:2", "gpu.power_watts = 10");
  EXPECT_EQ(simulate(starved).iteration_time, simulate(usual).iteration_time);
  EXPECT_THAT(idle_text(idle_fields(starved)), HasSubstr("gpu.power_watts (needs "));
}

TEST(IdleHardwareFields, APowerLimitIsHonouredWhereTheEnergyIsKnown) {
  Plan usual = plan_with("hgx-h100:2", "gpu.power_watts=700");
  Plan starved = plan_with("hgx-h100:2", "gpu.power_watts=10");
  EXPECT_GT(simulate(starved).iteration_time, simulate(usual).iteration_time);
  EXPECT_EQ(idle_text(idle_fields(starved)), "");
  starved.precision = usual.precision = DType::Fp32;
  EXPECT_EQ(simulate(starved).iteration_time, simulate(usual).iteration_time);
  EXPECT_THAT(idle_text(idle_fields(starved)), HasSubstr("gpu.power_watts (needs "));
}

TEST(IdleHardwareFields, CacheAndClockAreOfOtherCommands) {
  for (const char* setting : {"gpu.l2_cache=1 MiB", "gpu.boost_clock=500 MHz"}) {
    const Plan plan = plan_with("hgx-h100:2", setting);
    EXPECT_EQ(simulate(plan).iteration_time,
              simulate(plan_with("hgx-h100:2", "gpu.power_watts=700")).iteration_time);
    EXPECT_THAT(idle_text(idle_fields(plan)), HasSubstr("which alone read it)"));
  }
}

}  // namespace
}  // namespace orrery::plan
