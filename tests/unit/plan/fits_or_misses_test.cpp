// SPDX-License-Identifier: Apache-2.0
// Whether a plan fits, with and without the short way over the layers of a shared output layer: one
// answer on both sides of the edge, for other times, too, and never more that misses.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::plan {
namespace {

Plan shared_output_layer(const char* schedule, int chunks, int micro_batch) {
  Plan plan = in_pipeline(small_plan(), schedule, {.chunks = chunks});
  plan.micro_batch = micro_batch;
  return plan;
}

TEST(FitsOrMisses, IsTheSameAnswer) {
  int fit = 0;
  int missed = 0;
  int understated = 0;
  for (const char* schedule : {"1f1b", "vocab-1", "vocab-2"}) {
    for (const int chunks : {1, 2}) {
      if (chunks == 2 && schedule[0] == '1') {
        continue;
      }
      Plan plan = shared_output_layer(schedule, chunks, 1);
      Simulator simulator(plan);
      for (const int micro_batch : {1, 2}) {  // the second with lists of the first
        plan.micro_batch = micro_batch;
        ByteCount peak;
        for (const StageMemory& stage : simulator.memory(plan)) {
          peak = std::max(peak, stage.total());
        }
        const ByteCount room = plan.cluster.gpu.memory - peak;
        for (const std::int64_t step : {-1000, -1, 0, 1, 1000, 1'000'000, 1'000'000'000}) {
          plan.memory_reserve = room + ByteCount(step);
          const MemoryVerdict exact = simulator.fits(plan);
          const MemoryVerdict quick = simulator.fits_or_misses(plan);
          EXPECT_EQ(quick.fits, exact.fits) << schedule << " " << chunks << " " << step;
          EXPECT_LE(quick.excess, exact.excess) << schedule << " " << chunks << " " << step;
          fit += exact.fits ? 1 : 0;
          missed += exact.fits ? 0 : 1;
          understated += quick.excess < exact.excess ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(fit, 0);
  EXPECT_GT(missed, 0);
  EXPECT_GT(understated, 0);  // the short way was taken
}

}  // namespace
}  // namespace orrery::plan
