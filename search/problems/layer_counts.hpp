// SPDX-License-Identifier: Apache-2.0
// Equal layers that each take one of a few strategies: only how many take which one matters. Finds
// the vectors of counts with the least pairs of two sums within memory, exactly, by branch and
// bound: the rest of a partial choice costs at least what fractions of layers would, on the lower
// convex hull of (memory, cost) of the strategies that are left.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace orrery::search {

struct CountedStrategy {
  std::int64_t memory = 0;  // of a layer
  double first = 0;         // the two costs of a layer
  double second = 0;
};

struct LayerCounts {
  std::int64_t memory = 0;
  double first = 0;  // sums
  double second = 0;
  std::vector<int> counts;  // by strategy
};

// All pairs (first, second) that no other choice within `room` beats in both, ascending by the
// first. `worthwhile` may rule out sums, with all that are larger in both; it is asked anew as it
// may tighten. Empty when nothing fits. Deterministic.
std::vector<LayerCounts> least_counts(
    std::span<const CountedStrategy> strategies, int layers, std::int64_t room,
    const std::function<bool(double first, double second)>& worthwhile);

// Lower bounds of both sums; `fits` false when no choice is within `room`.
struct CountBound {
  bool fits = false;
  double first = 0;
  double second = 0;
};
CountBound count_bound(std::span<const CountedStrategy> strategies, int layers, std::int64_t room);

}  // namespace orrery::search
