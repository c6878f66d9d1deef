// SPDX-License-Identifier: Apache-2.0
// What shards of an output layer cost beside their products.
#include "plan/shared_output.hpp"

#include <gtest/gtest.h>

#include "plan/simulate.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

constexpr double kHidden = 2048.0 * 1024;
constexpr double kLogits = 2048.0 * 51200 / 8;

Plan shared(const std::string& schedule) {
  const Plan plan = in_pipeline(small_plan(small_spec(), "dgx-a100:1"), schedule,
                                {.pp = 8, .dp = 1, .tp = 1, .micro_batches = 32});
  check_plan(plan, "test");
  return plan;
}

// One barrier moves more bytes than two. The collectives that run beside the passes take
// multiprocessors.
TEST(SharedOutput, KernelsAndCollectivesBesideThem) {
  const Plan two = shared("vocab-1");
  const Plan one = shared("vocab-2");
  const BlockCosts costs(two);
  const SharedOutputTimes a = shared_output_times(two, 2, costs);
  const SharedOutputTimes b = shared_output_times(one, 1, costs);
  const auto seconds = [&](double bytes) {
    return costs.device().memory_bound(Bytes(bytes), costmodel::MemoryKernel::Elementwise).value();
  };
  EXPECT_EQ(a.backward.value(), seconds(8 * kLogits));
  EXPECT_EQ(b.backward.value(), seconds(8 * kLogits + 2 * kHidden));
  EXPECT_NEAR((b.forward - a.forward).value(),
              seconds(6 * kLogits + 30 * kHidden) - seconds(14 * kHidden), 1e-12);
  const double taken = a.forward.value() - seconds(14 * kHidden);
  EXPECT_GT(taken, 0);
  Plan free = two;
  free.profile.collective_sms = 0;
  EXPECT_NEAR(shared_output_times(free, 2, BlockCosts(free)).forward.value(), seconds(14 * kHidden),
              1e-12);
  EXPECT_LT(simulate(free).iteration_time.value(), simulate(two).iteration_time.value());
}

TEST(SharedOutput, CollectivesOfAllTogetherAreInLine) {
  const Plan plan = shared("interlaced");
  const BlockCosts costs(plan);
  const SharedOutputTimes times = shared_output_times(plan, 0, costs);
  const auto group = costmodel::make_group(8, 1, 8);
  const Bytes stream(2.0 * kHidden);
  EXPECT_EQ(times.forward, costs.collectives().time(sim::CommKind::AllReduce, stream, group));
  EXPECT_EQ(times.backward, costs.collectives().time(sim::CommKind::Broadcast, stream, group));
}

TEST(SharedOutput, HiddenStatesTravelInFp32UnlessAllMeet) {
  const Bytes boundary(2.0 * kHidden);
  EXPECT_DOUBLE_EQ(hidden_broadcast_bytes(shared("vocab-1"), boundary).value(),
                   4.0 * 2048 * (1024 + 1));
  EXPECT_EQ(hidden_broadcast_bytes(shared("interlaced"), boundary), boundary);
}

}  // namespace
}  // namespace orrery::plan
