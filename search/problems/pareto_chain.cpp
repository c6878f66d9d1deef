// SPDX-License-Identifier: Apache-2.0
#include "search/problems/pareto_chain.hpp"

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/error.hpp"

namespace orrery::search {
namespace {

struct Point {
  std::int64_t memory = 0;
  double time = 0;
};

// The points of one layer, strategy after strategy, each a frontier of rising memory.
struct Frontiers {
  std::vector<Point> points;
  std::vector<std::size_t> begin;  // n + 1 bounds
};

// Keeps of `candidates` those that no other beats in both, and appends them.
void append_frontier(std::vector<Point>& candidates, std::vector<Point>& points) {
  std::sort(candidates.begin(), candidates.end(), [](const Point& a, const Point& b) {
    return a.memory != b.memory ? a.memory < b.memory : a.time < b.time;
  });
  const std::size_t first = points.size();
  for (const Point& point : candidates) {
    if (points.size() == first || point.time < points.back().time) {
      points.push_back(point);
    }
  }
}

// What the layers from each on need at least.
std::vector<std::int64_t> least_memory_from(std::span<const LayerChoices> layers) {
  std::vector<std::int64_t> least(layers.size() + 1, 0);
  for (std::size_t i = layers.size(); i-- > 0;) {
    least[i] = least[i + 1] + *std::min_element(layers[i].memory.begin(), layers[i].memory.end());
  }
  return least;
}

Frontiers first_layer(const LayerChoices& layer, std::int64_t room) {
  Frontiers result;
  result.begin.push_back(0);
  for (std::size_t s = 0; s < layer.time.size(); ++s) {
    if (layer.memory[s] <= room) {
      result.points.push_back({layer.memory[s], layer.time[s]});
    }
    result.begin.push_back(result.points.size());
  }
  return result;
}

Frontiers next_layer(const Frontiers& previous, const LayerChoices& layer,
                     std::span<const double> switches, std::int64_t room) {
  const std::size_t n = layer.time.size();
  Frontiers result;
  result.begin.push_back(0);
  std::vector<Point> candidates;
  for (std::size_t to = 0; to < n; ++to) {
    candidates.clear();
    for (std::size_t from = 0; from < n; ++from) {
      for (std::size_t i = previous.begin[from]; i < previous.begin[from + 1]; ++i) {
        const Point& point = previous.points[i];
        if (point.memory + layer.memory[to] > room) {
          break;
        }
        candidates.push_back({point.memory + layer.memory[to],
                              point.time + switches[from * n + to] + layer.time[to]});
      }
    }
    append_frontier(candidates, result.points);
    result.begin.push_back(result.points.size());
  }
  return result;
}

// Of the points of strategy `s` within `room` the fastest, which is the last; null when none fits.
const Point* fastest(const Frontiers& frontiers, std::size_t s, std::int64_t room) {
  const auto begin = frontiers.points.begin() + static_cast<std::ptrdiff_t>(frontiers.begin[s]);
  const auto end = frontiers.points.begin() + static_cast<std::ptrdiff_t>(frontiers.begin[s + 1]);
  const auto after =
      std::partition_point(begin, end, [room](const Point& point) { return point.memory <= room; });
  return after == begin ? nullptr : &*std::prev(after);
}

// The strategy of one layer, given the `next` one and what it costs to follow it: the first with
// the least time within `room`. -1 when none fits.
int choose(const Frontiers& frontiers, std::size_t n, std::int64_t room,
           const std::function<double(const Point&, std::size_t)>& time) {
  int best = -1;
  double least = 0;
  for (std::size_t s = 0; s < n; ++s) {
    const Point* point = fastest(frontiers, s, room);
    if (point != nullptr && (best < 0 || time(*point, s) < least)) {
      best = static_cast<int>(s);
      least = time(*point, s);
    }
  }
  return best;
}

}  // namespace

std::optional<ChainPlan> best_chain_plan(std::span<const LayerChoices> layers,
                                         std::span<const double> switches, std::int64_t budget) {
  ORRERY_CHECK(!layers.empty(), "a chain has layers");
  const std::size_t n = layers.front().time.size();
  ORRERY_CHECK(n > 0 && switches.size() == n * n, "one cost for every pair of strategies");
  const std::vector<std::int64_t> least = least_memory_from(layers);
  std::vector<Frontiers> frontiers;
  frontiers.push_back(first_layer(layers.front(), budget - least[1]));
  for (std::size_t i = 1; i < layers.size(); ++i) {
    ORRERY_CHECK(layers[i].time.size() == n && layers[i].memory.size() == n,
                 "all layers choose among the same strategies");
    frontiers.push_back(next_layer(frontiers.back(), layers[i], switches, budget - least[i + 1]));
  }
  ChainPlan plan;
  plan.strategies.resize(layers.size());
  std::int64_t room = budget;
  for (std::size_t i = layers.size(); i-- > 0;) {
    const bool last = i + 1 == layers.size();
    const auto next = last ? 0 : static_cast<std::size_t>(plan.strategies[i + 1]);
    const int s = choose(frontiers[i], n, room, [&](const Point& point, std::size_t from) {
      return last ? point.time : point.time + switches[from * n + next] + layers[i + 1].time[next];
    });
    if (s < 0) {
      return std::nullopt;
    }
    plan.strategies[i] = s;
    if (last) {
      plan.time = fastest(frontiers[i], static_cast<std::size_t>(s), room)->time;
    }
    room -= layers[i].memory[static_cast<std::size_t>(s)];
  }
  plan.memory = budget - room;
  return plan;
}

}  // namespace orrery::search
