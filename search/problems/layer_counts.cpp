// SPDX-License-Identifier: Apache-2.0
#include "search/problems/layer_counts.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::search {
namespace {

constexpr double kSlack = 1e-12;  // of a bound: rounding must not cut an optimum

struct Vertex {
  double memory = 0;
  double cost = 0;
};

// Lower convex hull of cost over memory, falling: what a layer costs at least for its memory.
class Hull {
 public:
  explicit Hull(std::vector<Vertex> points) {
    std::sort(points.begin(), points.end(), [](const Vertex& a, const Vertex& b) {
      return a.memory != b.memory ? a.memory < b.memory : a.cost < b.cost;
    });
    for (const Vertex& point : points) {
      if (!hull_.empty() && point.cost >= hull_.back().cost) {
        continue;
      }
      while (hull_.size() > 1 && above(hull_[hull_.size() - 2], hull_.back(), point)) {
        hull_.pop_back();
      }
      hull_.push_back(point);
    }
  }
  double least_memory() const { return hull_.front().memory; }
  // `memory` at least the least.
  double at(double memory) const {
    for (std::size_t i = 1; i < hull_.size(); ++i) {
      if (memory < hull_[i].memory) {
        const Vertex& a = hull_[i - 1];
        const Vertex& b = hull_[i];
        return a.cost + (b.cost - a.cost) * (memory - a.memory) / (b.memory - a.memory);
      }
    }
    return hull_.back().cost;
  }

 private:
  static bool above(const Vertex& a, const Vertex& middle, const Vertex& b) {
    return (middle.cost - a.cost) * (b.memory - a.memory) >=
           (b.cost - a.cost) * (middle.memory - a.memory);
  }
  std::vector<Vertex> hull_;
};

// Strategies that no other beats in memory and both costs, fastest first.
std::vector<int> useful(std::span<const CountedStrategy> all) {
  std::vector<int> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int i) -> const CountedStrategy& { return all[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return at(a).first < at(b).first; });
  std::vector<int> kept;
  for (const int i : order) {
    const bool beaten = std::any_of(order.begin(), order.end(), [&](int j) {
      const CountedStrategy& a = at(j);
      const CountedStrategy& b = at(i);
      const bool no_worse = a.memory <= b.memory && a.first <= b.first && a.second <= b.second;
      const bool equal = a.memory == b.memory && a.first == b.first && a.second == b.second;
      return j != i && no_worse && (!equal || j < i);
    });
    if (!beaten) {
      kept.push_back(i);
    }
  }
  return kept;
}

class Counter {
 public:
  Counter(std::span<const CountedStrategy> all, int layers, std::int64_t room,
          const std::function<bool(double, double)>& worthwhile)
      : all_(all), order_(useful(all)), room_(room), worthwhile_(worthwhile) {
    for (std::size_t from = 0; from < order_.size(); ++from) {
      std::vector<Vertex> first;
      std::vector<Vertex> second;
      for (std::size_t i = from; i < order_.size(); ++i) {
        const CountedStrategy& s = strategy(i);
        first.push_back({static_cast<double>(s.memory), s.first});
        second.push_back({static_cast<double>(s.memory), s.second});
      }
      first_.emplace_back(std::move(first));
      second_.emplace_back(std::move(second));
    }
    now_.counts.assign(all.size(), 0);
    layers_ = layers;
  }

  CountBound bound() const { return order_.empty() ? CountBound() : bound_from(0, layers_); }

  std::vector<LayerCounts> run() {
    if (!order_.empty()) {
      extend(0, layers_);
    }
    std::sort(found_.begin(), found_.end(),
              [](const LayerCounts& a, const LayerCounts& b) { return a.first < b.first; });
    return std::move(found_);
  }

 private:
  const CountedStrategy& strategy(std::size_t i) const {
    return all_[static_cast<std::size_t>(order_[i])];
  }

  // Of the choice so far with `left` layers on strategies from `from` on.
  CountBound bound_from(std::size_t from, int left) const {
    CountBound bound{true, now_.first, now_.second};
    if (left > 0) {
      const double each = static_cast<double>(room_ - now_.memory) / left;
      bound.fits = each >= first_[from].least_memory();
      if (bound.fits) {
        bound.first += left * first_[from].at(each) * (1 - kSlack);
        bound.second += left * second_[from].at(each) * (1 - kSlack);
      }
    }
    return bound;
  }

  bool is_beaten(double first, double second) const {
    return std::any_of(found_.begin(), found_.end(), [&](const LayerCounts& other) {
      return other.first <= first && other.second <= second;
    });
  }

  void extend(std::size_t from, int left) {
    const CountBound bound = bound_from(from, left);
    if (!bound.fits || is_beaten(bound.first, bound.second) ||
        !worthwhile_(bound.first, bound.second)) {
      return;
    }
    if (left == 0) {
      keep();
      return;
    }
    const LayerCounts before = now_;
    const CountedStrategy& s = strategy(from);
    int& count = now_.counts[static_cast<std::size_t>(order_[from])];
    const bool last = from + 1 == order_.size();
    const std::int64_t most =
        s.memory > 0 ? std::min<std::int64_t>(left, (room_ - now_.memory) / s.memory) : left;
    for (std::int64_t n = most; n >= (last ? left : 0); --n) {
      now_.memory = before.memory + n * s.memory;
      now_.first = before.first + static_cast<double>(n) * s.first;
      now_.second = before.second + static_cast<double>(n) * s.second;
      count = static_cast<int>(n);
      extend(std::min(from + 1, order_.size() - 1), left - static_cast<int>(n));
    }
    count = 0;
    now_.memory = before.memory;
    now_.first = before.first;
    now_.second = before.second;
  }

  void keep() {
    std::erase_if(found_, [&](const LayerCounts& other) {
      return now_.first <= other.first && now_.second <= other.second;
    });
    found_.push_back(now_);
  }

  std::span<const CountedStrategy> all_;
  std::vector<int> order_;
  std::int64_t room_;
  const std::function<bool(double, double)>& worthwhile_;
  std::vector<Hull> first_, second_;  // of the strategies from each on
  LayerCounts now_;
  int layers_ = 0;
  std::vector<LayerCounts> found_;
};

}  // namespace

std::vector<LayerCounts> least_counts(std::span<const CountedStrategy> strategies, int layers,
                                      std::int64_t room,
                                      const std::function<bool(double, double)>& worthwhile) {
  return Counter(strategies, layers, room, worthwhile).run();
}

CountBound count_bound(std::span<const CountedStrategy> strategies, int layers, std::int64_t room) {
  const std::function<bool(double, double)> all = [](double, double) { return true; };
  return Counter(strategies, layers, room, all).bound();
}

}  // namespace orrery::search
