// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/surface_points.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::calibrate {
namespace {

constexpr int kSms = 132;

// A smooth surface of n x m shapes, 20 % slower than the formula at small sizes.
std::vector<SurfacePoint> smooth(int rows, int columns) {
  std::vector<SurfacePoint> points;
  for (int n = 1; n <= rows; ++n) {
    for (int m = 1; m <= columns; ++m) {
      const double factor = 0.2 / n;
      SurfacePoint point;
      point.point = {{1024, 256 * n, 256 * m}, static_cast<int>(std::lround(1000 * factor))};
      point.formula_s = 1e-6 * n * m;
      point.beside_s = 2e-6;
      point.measured_s = point.formula_s * std::exp(factor) + point.beside_s;
      points.push_back(point);
    }
  }
  return points;
}

void disturb(SurfacePoint& point, double times) {
  point.measured_s *= times;
  point.point.permille = static_cast<int>(
      std::lround(1000 * std::log((point.measured_s - point.beside_s) / point.formula_s)));
}

TEST(SurfacePointsTest, AConsistentSetStaysWhole) {
  const std::vector<SurfacePoint> points = smooth(40, 30);
  EXPECT_EQ(consistent_points({}, points, kSms).size(), points.size());
}

TEST(SurfacePointsTest, DisturbedTimesAreLeftOutAndNoOthers) {
  std::vector<SurfacePoint> points = smooth(40, 30);
  const std::vector<costmodel::KernelSizes> disturbed = {points[444].point.sizes,
                                                         points[817].point.sizes};
  disturb(points[444], 2.5);
  disturb(points[817], 1.6);
  const std::vector<costmodel::KernelPoint> kept = consistent_points({}, points, kSms);
  EXPECT_EQ(kept.size(), points.size() - 2);
  for (const costmodel::KernelPoint& point : kept) {
    EXPECT_NE(point.sizes, disturbed[0]);
    EXPECT_NE(point.sizes, disturbed[1]);
  }
}

// A shape of few may stand for its surroundings alone: half as much again is believed.
TEST(SurfacePointsTest, SmallSetsKeepAllButDisturbedTimes) {
  std::vector<SurfacePoint> points = smooth(12, 10);
  disturb(points[14], 4);
  disturb(points[57], 3);
  disturb(points[100], 1.5);
  const std::vector<costmodel::KernelPoint> kept = consistent_points({}, points, kSms);
  EXPECT_EQ(kept.size(), points.size() - 2);
  for (const costmodel::KernelPoint& point : kept) {
    EXPECT_NE(point.sizes, points[14].point.sizes);
    EXPECT_NE(point.sizes, points[57].point.sizes);
  }
}

// Where times differ that much anyway, none is a mistake.
TEST(SurfacePointsTest, SmallSetsThatContradictThemselvesStayWhole) {
  std::vector<SurfacePoint> points = smooth(12, 10);
  for (std::size_t i = 0; i < points.size(); i += 2) {
    disturb(points[i], 2.2);
  }
  EXPECT_EQ(consistent_points({}, points, kSms).size(), points.size());
}

TEST(SurfacePointsTest, AFewPointsStayWhole) {
  std::vector<SurfacePoint> points = smooth(4, 5);
  disturb(points[7], 3);
  EXPECT_EQ(consistent_points({}, points, kSms).size(), points.size());
}

}  // namespace
}  // namespace orrery::calibrate
