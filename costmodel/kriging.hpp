// SPDX-License-Identifier: Apache-2.0
// Interpolation of scattered measurements: simple kriging (the posterior mean of a Gaussian process
// with mean zero) from the nearest kNeighbours points, under the correlation exp(-distance /
// kReach) and the noise kNoise relative to the variance of the data. It passes within the noise of
// the points, follows them between, and decays to zero away from all of them.
//
// Coordinates are scaled by the caller so that one unit is the same loss of similarity in each.
// predict() is pure, allocates nothing and takes O(sqrt(points) + kNeighbours^3): about 20 us with
// 7,000 points in 12 dimensions. Building is O(points log points).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::costmodel {

class Kriging {
 public:
  static constexpr int kDimensions = 12;
  static constexpr int kNeighbours = 32;
  static constexpr double kReach = 3;
  static constexpr double kNoise = 0.02;

  using Point = std::array<float, kDimensions>;

  Kriging(const std::vector<Point>& points, const std::vector<double>& values);
  double predict(const Point& at) const;

 private:
  struct Node {  // a box of points [begin, end); children follow unless it is a leaf
    std::int32_t begin, end;
    std::int32_t left, right;  // -1 for leaves
    std::int32_t axis;
    float split;
  };
  class Nearest;
  std::int32_t build(std::int32_t begin, std::int32_t end, const std::vector<Point>& points,
                     std::vector<std::int32_t>& order);
  void search(std::int32_t node, const Point& at, std::array<float, kDimensions>& outside,
              float distance, Nearest& nearest) const;

  std::vector<Node> nodes_;
  std::vector<Point> points_;  // in the order of the tree
  std::vector<double> values_;
};

}  // namespace orrery::costmodel
