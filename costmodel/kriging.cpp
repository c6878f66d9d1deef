// SPDX-License-Identifier: Apache-2.0
#include "costmodel/kriging.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace orrery::costmodel {

namespace {

constexpr std::int32_t kLeafPoints = 12;

float squared_distance(const Kriging::Point& a, const Kriging::Point& b) {
  float sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = a[i] - b[i];
    sum += difference * difference;
  }
  return sum;
}

double correlation(float squared) {
  return std::exp(-std::sqrt(static_cast<double>(squared)) / Kriging::kReach);
}

using Row = std::array<double, Kriging::kNeighbours>;

// Solves the symmetric positive definite system in place; the lower triangle is read.
void solve(std::array<Row, Kriging::kNeighbours>& matrix, Row& right, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = matrix[i][j];
      for (std::size_t k = 0; k < j; ++k) {
        sum -= matrix[i][k] * matrix[j][k];
      }
      matrix[i][j] = i == j ? std::sqrt(sum) : sum / matrix[j][j];
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      right[i] -= matrix[i][k] * right[k];
    }
    right[i] /= matrix[i][i];
  }
  for (std::size_t i = size; i-- > 0;) {
    for (std::size_t k = i + 1; k < size; ++k) {
      right[i] -= matrix[k][i] * right[k];
    }
    right[i] /= matrix[i][i];
  }
}

}  // namespace

// The nearest points so far, the farthest first (a heap).
class Kriging::Nearest {
 public:
  explicit Nearest(std::size_t wanted) : wanted_(wanted) {}
  float limit() const { return count_ < wanted_ ? 1e30F : found_[0].first; }
  void offer(float squared, std::int32_t index) {
    if (count_ == wanted_) {
      if (squared >= found_[0].first) {
        return;
      }
      std::pop_heap(found_.begin(), end());
      --count_;
    }
    found_[count_++] = {squared, index};
    std::push_heap(found_.begin(), end());
  }
  std::size_t size() const { return count_; }
  // By distance, then by index: the result does not depend on the shape of the tree.
  void sort() { std::sort(found_.begin(), end()); }
  const std::pair<float, std::int32_t>& operator[](std::size_t i) const { return found_[i]; }

 private:
  using Found = std::array<std::pair<float, std::int32_t>, kNeighbours>;
  Found::iterator end() { return found_.begin() + static_cast<std::ptrdiff_t>(count_); }
  Found found_;
  std::size_t count_ = 0;
  std::size_t wanted_;
};

Kriging::Kriging(const std::vector<Point>& points, const std::vector<double>& values) {
  ORRERY_CHECK(points.size() == values.size(), "a value for each point");
  std::vector<std::int32_t> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  if (!points.empty()) {
    build(0, static_cast<std::int32_t>(points.size()), points, order);
  }
  points_.reserve(points.size());
  values_.reserve(points.size());
  for (const std::int32_t index : order) {
    points_.push_back(points[static_cast<std::size_t>(index)]);
    values_.push_back(values[static_cast<std::size_t>(index)]);
  }
}

std::int32_t Kriging::build(std::int32_t begin, std::int32_t end, const std::vector<Point>& points,
                            std::vector<std::int32_t>& order) {
  const auto index = static_cast<std::int32_t>(nodes_.size());
  nodes_.push_back({begin, end, -1, -1, 0, 0});
  Point low;
  Point high;
  low.fill(1e30F);
  high.fill(-1e30F);
  for (std::int32_t i = begin; i < end; ++i) {
    const Point& point = points[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
    for (std::size_t axis = 0; axis < low.size(); ++axis) {
      low[axis] = std::min(low[axis], point[axis]);
      high[axis] = std::max(high[axis], point[axis]);
    }
  }
  std::size_t widest = 0;
  for (std::size_t axis = 1; axis < low.size(); ++axis) {
    if (high[axis] - low[axis] > high[widest] - low[widest]) {
      widest = axis;
    }
  }
  if (end - begin <= kLeafPoints || high[widest] - low[widest] <= 0) {
    return index;
  }
  const std::int32_t middle = begin + (end - begin) / 2;
  const auto coordinate = [&](std::int32_t i) {
    return points[static_cast<std::size_t>(i)][widest];
  };
  std::nth_element(order.begin() + begin, order.begin() + middle, order.begin() + end,
                   [&](std::int32_t a, std::int32_t b) {
                     return coordinate(a) != coordinate(b) ? coordinate(a) < coordinate(b) : a < b;
                   });
  const float split = coordinate(order[static_cast<std::size_t>(middle)]);
  const std::int32_t left = build(begin, middle, points, order);
  const std::int32_t right = build(middle, end, points, order);
  Node& node = nodes_[static_cast<std::size_t>(index)];
  node.left = left;
  node.right = right;
  node.axis = static_cast<std::int32_t>(widest);
  node.split = split;
  return index;
}

// `distance` is the squared distance from `at` to the box of the node, `outside` its parts.
void Kriging::search(std::int32_t index, const Point& at, std::array<float, kDimensions>& outside,
                     float distance, Nearest& nearest) const {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.left < 0) {
    for (std::int32_t i = node.begin; i < node.end; ++i) {
      nearest.offer(squared_distance(points_[static_cast<std::size_t>(i)], at), i);
    }
    return;
  }
  const auto axis = static_cast<std::size_t>(node.axis);
  const float offset = at[axis] - node.split;
  search(offset < 0 ? node.left : node.right, at, outside, distance, nearest);
  const float before = outside[axis];
  const float further = distance - before * before + offset * offset;
  if (further < nearest.limit()) {
    outside[axis] = offset;
    search(offset < 0 ? node.right : node.left, at, outside, further, nearest);
    outside[axis] = before;
  }
}

double Kriging::predict(const Point& at) const {
  if (points_.empty()) {
    return 0;
  }
  Nearest nearest(std::min<std::size_t>(kNeighbours, points_.size()));
  std::array<float, kDimensions> outside{};
  search(0, at, outside, 0, nearest);
  nearest.sort();
  const std::size_t size = nearest.size();
  std::array<Row, kNeighbours> matrix;
  Row weights;
  for (std::size_t i = 0; i < size; ++i) {
    const Point& point = points_[static_cast<std::size_t>(nearest[i].second)];
    weights[i] = correlation(nearest[i].first);
    for (std::size_t j = 0; j < i; ++j) {
      const Point& other = points_[static_cast<std::size_t>(nearest[j].second)];
      matrix[i][j] = correlation(squared_distance(point, other));
    }
    matrix[i][i] = 1 + kNoise;
  }
  solve(matrix, weights, size);
  double sum = 0;
  for (std::size_t i = 0; i < size; ++i) {
    sum += weights[i] * values_[static_cast<std::size_t>(nearest[i].second)];
  }
  return sum;
}

}  // namespace orrery::costmodel
