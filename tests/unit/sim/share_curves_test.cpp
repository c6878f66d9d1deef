// SPDX-License-Identifier: Apache-2.0
// Class curves and the best way to share a device: cases worked by hand and known special cases.
#include "sim/engine/share_curves.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

TEST(ShareCurve, InterpolatesBothWays) {
  const ShareCurve& memory = memory_curve();
  EXPECT_DOUBLE_EQ(memory.speed(0), 0);
  EXPECT_DOUBLE_EQ(memory.speed(0.4), 0.8);
  EXPECT_DOUBLE_EQ(memory.speed(0.3), 0.55);
  EXPECT_DOUBLE_EQ(memory.speed(1), 1);
  for (const double share : {0.05, 0.15, 0.37, 0.62, 0.97}) {
    EXPECT_NEAR(memory.share(memory.speed(share)), share, 1e-12);
    EXPECT_DOUBLE_EQ(gemm_curve().speed(share), share);
  }
  EXPECT_DOUBLE_EQ(network_curve().speed(0.95), 1);
  EXPECT_DOUBLE_EQ(network_curve().share(1), 0.9);
}

TEST(ShareCurve, RefusesWhatIsNoCurve) {
  using Points = std::vector<ShareCurve::Point>;
  EXPECT_THROW(ShareCurve(Points{{0, 0}, {0.5, 1}}, "curve"), Error);
  EXPECT_THROW(ShareCurve(Points{{0, 0.1}, {1, 1}}, "curve"), Error);
  EXPECT_THROW(ShareCurve(Points{{0, 0}, {0.6, 0.5}, {0.4, 0.7}, {1, 1}}, "curve"), Error);
  EXPECT_THROW(ShareCurve(Points{{0, 0}, {0.4, 0.5}, {0.6, 0.4}, {1, 1}}, "curve"), Error);
}

double best(double gemm, double memory, double network) {
  return nano_batch_sharing().time({Seconds(gemm), Seconds(memory), Seconds(network)}).value();
}

// Alone, each kind takes its own time. Beside GEMMs decode attention costs half a GEMM share for
// each unit (R = 0.4 for P = 0.8, or 0.1 for 0.2), the network a third (0.1 for 0.3).
TEST(OptimalSharing, IsExactAtTheEnds) {
  EXPECT_NEAR(best(7, 0, 0), 7, 1e-9);
  EXPECT_NEAR(best(0, 7, 0), 7, 1e-9);
  EXPECT_NEAR(best(0, 0, 7), 7, 1e-9);
  EXPECT_NEAR(best(100, 10, 0), 100 + 10 / 2.0, 1e-9);
  EXPECT_NEAR(best(100, 0, 10), 100 + 10 / 3.0, 1e-9);
  EXPECT_NEAR(best(136.97, 35.6, 47.92), 136.97 + 35.6 / 2 + 47.92 / 3, 1e-6);
}

TEST(OptimalSharing, StandsBetweenTheLongestAndTheSum) {
  for (const double gemm : {0.0, 1.0, 5.0}) {
    for (const double memory : {0.0, 2.0, 9.0}) {
      for (const double network : {0.0, 0.5, 4.0}) {
        const double time = best(gemm, memory, network);
        EXPECT_GE(time, std::max({gemm, memory, network}) - 1e-9);
        EXPECT_LE(time, gemm + memory + network + 1e-9);
        EXPECT_LE(time, best(gemm + 1, memory, network) + 1e-9);
      }
    }
  }
}

// GEMM-like curves for all three: sharing gains nothing.
TEST(OptimalSharing, ProportionalCurvesAddUp) {
  const OptimalSharing sharing({&gemm_curve(), &gemm_curve(), &gemm_curve()});
  EXPECT_NEAR(sharing.time({Seconds(3), Seconds(4), Seconds(5)}).value(), 12, 1e-9);
}

}  // namespace
}  // namespace orrery::sim
