// SPDX-License-Identifier: Apache-2.0
#include "costmodel/kriging.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.hpp"

namespace orrery::costmodel {
namespace {

struct Cloud {
  std::vector<Kriging::Point> points;
  std::vector<double> values;
};

double hill(const Kriging::Point& at) { return 0.3 * std::sin(at[0]) + 0.1 * std::cos(at[1]); }

Kriging::Point point_at(double x, double y) {
  Kriging::Point point{};
  point[0] = static_cast<float>(x);
  point[1] = static_cast<float>(y);
  return point;
}

Cloud cloud(int count, std::uint64_t seed) {
  Random random(seed);
  Cloud cloud;
  for (int i = 0; i < count; ++i) {
    cloud.points.push_back(point_at(6 * random.uniform(), 6 * random.uniform()));
    cloud.values.push_back(hill(cloud.points.back()));
  }
  return cloud;
}

TEST(KrigingTest, WithoutPointsItIsZero) { EXPECT_EQ(Kriging({}, {}).predict(point_at(1, 2)), 0); }

TEST(KrigingTest, PassesThroughPointsAndFollowsThemBetween) {
  const Cloud data = cloud(800, 1);
  const Kriging kriging(data.points, data.values);
  for (std::size_t i = 0; i < data.points.size(); i += 7) {
    EXPECT_NEAR(kriging.predict(data.points[i]), data.values[i], 0.02);
  }
  const Cloud between = cloud(100, 2);
  for (std::size_t i = 0; i < between.points.size(); ++i) {
    EXPECT_NEAR(kriging.predict(between.points[i]), between.values[i], 0.04);
  }
}

TEST(KrigingTest, FadesToZeroFarAway) {
  const Kriging kriging({point_at(0, 0)}, {0.5});
  EXPECT_NEAR(kriging.predict(point_at(0, 0)), 0.5 / (1 + Kriging::kNoise), 1e-12);
  EXPECT_NEAR(kriging.predict(point_at(Kriging::kReach, 0)),
              0.5 / (1 + Kriging::kNoise) * std::exp(-1), 1e-6);
  EXPECT_LT(kriging.predict(point_at(60, 0)), 1e-6);
}

// The search tree finds the same neighbours in whatever order the points come.
TEST(KrigingTest, OrderOfPointsDoesNotMatter) {
  const Cloud data = cloud(500, 3);
  Cloud turned = data;
  std::reverse(turned.points.begin(), turned.points.end());
  std::reverse(turned.values.begin(), turned.values.end());
  const Kriging one(data.points, data.values);
  const Kriging other(turned.points, turned.values);
  for (const Kriging::Point& at : cloud(200, 4).points) {
    EXPECT_NEAR(one.predict(at), other.predict(at), 1e-9);
  }
}

// With few points the answer is that of the whole system, solved here by Gauss-Seidel.
TEST(KrigingTest, SolvesTheSystemOfItsNeighbours) {
  const Cloud data = cloud(Kriging::kNeighbours, 5);
  const Kriging kriging(data.points, data.values);
  const Kriging::Point at = point_at(3, 3);
  const auto correlation = [](const Kriging::Point& a, const Kriging::Point& b) {
    return std::exp(-std::hypot(a[0] - b[0], a[1] - b[1]) / Kriging::kReach);
  };
  std::vector<double> weights(data.points.size(), 0.0);
  for (int round = 0; round < 20000; ++round) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      double rest = correlation(at, data.points[i]);
      for (std::size_t j = 0; j < weights.size(); ++j) {
        rest -= i == j ? 0 : weights[j] * correlation(data.points[i], data.points[j]);
      }
      weights[i] = rest / (1 + Kriging::kNoise);
    }
  }
  double expected = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    expected += weights[i] * data.values[i];
  }
  EXPECT_NEAR(kriging.predict(at), expected, 1e-5);
}

TEST(KrigingTest, EqualPointsAreNoTrouble) {
  const std::vector<Kriging::Point> same(100, point_at(1, 1));
  const Kriging kriging(same, std::vector<double>(100, 0.2));
  EXPECT_NEAR(kriging.predict(point_at(1, 1)), 0.2, 1e-3);
}

}  // namespace
}  // namespace orrery::costmodel
