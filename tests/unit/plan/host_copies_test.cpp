// SPDX-License-Identifier: Apache-2.0
// A schedule that copies activations to the host and back, in plans: time, memory and replay.
#include "plan/stage/host_copies.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/block/memory_facts.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/offload_time.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

// Eight stages of one layer, 16 micro-batches: 1f1b holds 8 on the first stage, of which a copying
// one keeps two buffers each way.
Plan eight_stages(const std::string& schedule) {
  const Plan plan = in_pipeline(small_plan(), schedule, {.pp = 8, .dp = 1});
  check_plan(plan, "test");
  return plan;
}

TEST(HostCopies, DevicesHoldFourMicroBatchesAndTheHostTheRest) {
  const Plan usual = eight_stages("1f1b");
  const Plan copying = eight_stages("pipeoffload");
  const std::vector<StageMemory> all = Simulator(usual).memory(usual);
  const std::vector<StageMemory> few = Simulator(copying).memory(copying);
  for (std::size_t d = 0; d < 8; ++d) {
    const std::int64_t in_flight = 8 - static_cast<std::int64_t>(d);
    const ByteCount one((all[d].activations + all[d].ends).value() / in_flight);
    EXPECT_EQ(few[d].activations + few[d].ends, one * std::min<std::int64_t>(in_flight, 4)) << d;
    EXPECT_EQ(few[d].host, in_flight > 4 ? one * in_flight : ByteCount()) << d;
    EXPECT_EQ(few[d].parameters, all[d].parameters);
    EXPECT_EQ(few[d].optimizer, all[d].optimizer);
  }
}

TEST(HostCopies, CostNothingOverFastLinksAndTheLinksTimeOverSlowOnes) {
  Plan copying = eight_stages("pipeoffload");
  copying.cluster.node.host_link_per_gpu *= 1000.0;
  const Simulation fast = simulate(copying);
  EXPECT_EQ(fast.iteration_time, simulate(eight_stages("1f1b")).iteration_time);
  EXPECT_EQ(fast.pipeline.devices.size(), 8U);
  copying.cluster.node.host_link_per_gpu *= 1e-6;
  const Simulation slow = simulate(copying);
  const sim::TierGraph tiers = tier_graph(copying.cluster, copying.profile);
  const Bytes one = slow.memory.front().host.bytes() * (1.0 / 8);
  const Seconds copy = one / tiers.channels.front().bandwidth;
  EXPECT_GT(slow.iteration_time, copy * 16.0);  // a stream in each direction
  EXPECT_LT(slow.iteration_time, copy * 20.0 + fast.iteration_time);
}

// A node whose host has less memory than its devices' activations need.
TEST(HostCopies, FillTheHostsMemory) {
  Plan copying = eight_stages("pipeoffload");
  ASSERT_FALSE(simulate(copying).does_not_fit.has_value());
  copying.cluster.node.host_memory = ByteCount(1 << 30);
  EXPECT_THAT(simulate(copying).does_not_fit.value_or(""), testing::HasSubstr("host memory"));
}

TEST(HostCopies, LeaveTheDeviceInTheReplay) {
  const Plan usual = eight_stages("1f1b");
  const Plan copying = eight_stages("pipeoffload");
  const std::vector<MemoryPeak> all = replay_memory(usual, {});
  const std::vector<MemoryPeak> few = replay_memory(copying, {});
  const std::vector<StageMemory> added = Simulator(usual).memory(usual);
  for (std::size_t d = 0; d < 8; ++d) {
    const auto in_flight = static_cast<std::int64_t>(8 - d);
    const double one =
        static_cast<double>((added[d].activations + added[d].ends).value() / in_flight);
    const auto gone = static_cast<double>((all[d].allocated - few[d].allocated).value());
    const auto fewer = static_cast<double>(std::max<std::int64_t>(0, in_flight - 4));
    // The output, which the next stage gets, is another buffer there.
    EXPECT_NEAR(gone, fewer * one, (fewer + 1e-9) * 0.1 * one) << d;
  }
}

TEST(HostCopies, NeedAHost) {
  Plan plan = eight_stages("pipeoffload");
  plan.cluster.node.host_memory = ByteCount();
  try {
    check_plan(plan, "test");
    FAIL() << "a plan that copies to no host";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("state node.host"));
  }
}

}  // namespace
}  // namespace orrery::plan
