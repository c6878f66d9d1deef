// SPDX-License-Identifier: Apache-2.0
#include "search/problems/sequence_groups.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>

#include "search/problems/group_loads.hpp"

namespace orrery::search {

namespace {

constexpr std::int64_t kSteps = 20'000;     // of one set of degrees
constexpr std::int64_t kAllSteps = 60'000;  // of one micro-batch, most promising sets first
constexpr std::size_t kExactSequences = 24;

// Assigns sequences (longest first) to the groups of one multiset of degrees.
class GroupSearch {
 public:
  GroupSearch(const std::vector<double>& lengths, const GroupCost& cost, std::vector<int> degrees,
              double bound, std::int64_t steps)
      : lengths_(lengths),
        cost_(cost),
        degrees_(std::move(degrees)),
        best_(bound),
        budget_(steps),
        load_(degrees_.size(), 0.0),
        tokens_(degrees_.size(), 0.0),
        chosen_(lengths.size(), 0) {}

  GroupAssignment run() {
    place(0);
    return {group_of_.empty() ? std::numeric_limits<double>::infinity() : best_, degrees_,
            group_of_, steps_ <= budget_};
  }
  std::int64_t steps() const { return steps_; }

 private:
  void place(std::size_t sequence) {
    if (++steps_ > budget_) {
      return;
    }
    if (sequence == lengths_.size()) {
      best_ = *std::max_element(load_.begin(), load_.end());
      group_of_ = chosen_;
      return;
    }
    for (const std::size_t group : by_end(sequence)) {
      const int log_degree = degrees_[group];
      const double time = cost_.of(lengths_[sequence], log_degree);
      const double before = load_[group];
      load_[group] += time + (before == 0 ? cost_.constant : 0);
      tokens_[group] += lengths_[sequence];
      chosen_[sequence] = static_cast<int>(group);
      if (load_[group] < best_) {
        place(sequence + 1);
      }
      tokens_[group] -= lengths_[sequence];
      load_[group] = before;
    }
  }

  // Groups that can hold the sequence, the soonest to end first; of equal groups only one.
  std::vector<std::size_t> by_end(std::size_t sequence) const {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t group = 0; group < degrees_.size(); ++group) {
      const double capacity = cost_.tokens_per_gpu * static_cast<double>(1 << degrees_[group]);
      if (tokens_[group] + lengths_[sequence] > capacity || same_as_earlier(group)) {
        continue;
      }
      order.emplace_back(load_[group] + cost_.of(lengths_[sequence], degrees_[group]), group);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> groups;
    groups.reserve(order.size());
    for (const auto& [end, group] : order) {
      groups.push_back(group);
    }
    return groups;
  }
  bool same_as_earlier(std::size_t group) const {
    for (std::size_t other = 0; other < group; ++other) {
      if (degrees_[other] == degrees_[group] && load_[other] == load_[group] &&
          tokens_[other] == tokens_[group]) {
        return true;
      }
    }
    return false;
  }

  const std::vector<double>& lengths_;
  const GroupCost& cost_;
  std::vector<int> degrees_;
  double best_;
  std::int64_t budget_;
  std::vector<double> load_, tokens_;
  std::vector<int> chosen_, group_of_;
  std::int64_t steps_ = 0;
};

using Order = std::vector<std::pair<double, const std::vector<int>*>>;

GroupAssignment best_greedy(const std::vector<double>& lengths, const GroupCost& cost,
                            const GroupTimes& times, const GroupBounds& bounds, const Order& order,
                            GroupEffort effort) {
  GroupAssignment best;
  for (const auto& [bound, degrees] : order) {
    if (bound >= best.time) {
      break;
    }
    GroupLoads loads(lengths, cost, times, *degrees);
    if (loads.fill(best.time, bounds.work_from(*degrees))) {
      if (effort == GroupEffort::Best) {
        loads.improve();
      }
      GroupAssignment found = loads.assignment();
      if (found.time < best.time) {
        best = std::move(found);
      }
    }
  }
  return best;
}

// `count` micro-batches of sorted neighbours with the least maximum of tokens.
std::vector<std::vector<double>> cut_batch(const std::vector<double>& sorted, int count) {
  double high = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  double low = std::max(*std::max_element(sorted.begin(), sorted.end()), high / count);
  const auto cut = [&sorted](double most) {
    std::vector<std::vector<double>> parts(1);
    double tokens = 0;
    for (const double length : sorted) {
      if (tokens + length > most && !parts.back().empty()) {
        parts.emplace_back();
        tokens = 0;
      }
      parts.back().push_back(length);
      tokens += length;
    }
    return parts;
  };
  for (int step = 0; step < 50; ++step) {
    const double middle = (low + high) / 2;
    (static_cast<int>(cut(middle).size()) <= count ? high : low) = middle;
  }
  return cut(high);
}

}  // namespace

BatchAssignment assign_batch(std::vector<double> lengths, const GroupCost& cost,
                             const std::vector<std::vector<int>>& sets, int least, int most,
                             GroupEffort effort) {
  std::sort(lengths.begin(), lengths.end());
  BatchAssignment best;
  for (int count = least; count <= std::min(most, static_cast<int>(lengths.size())); ++count) {
    BatchAssignment all;
    all.time = 0;
    for (std::vector<double>& part : cut_batch(lengths, count)) {
      GroupAssignment groups = assign_groups(part, cost, sets, effort);
      all.time += groups.time;
      all.proven = all.proven && groups.proven;
      if (all.time >= best.time) {
        break;
      }
      std::sort(part.rbegin(), part.rend());
      all.micro_batches.push_back({std::move(part), std::move(groups)});
    }
    if (all.time < best.time) {
      best = std::move(all);
    }
  }
  return best;
}

double GroupCost::of(double length, int log_degree) const {
  const double degree = static_cast<double>(1 << log_degree);
  const double exchange = log_degree == 0 ? 0
                                          : all_to_all_bytes * length / degree /
                                                bandwidth[static_cast<std::size_t>(log_degree)];
  return (quadratic * length * length + linear * length) / degree + exchange;
}

GroupAssignment assign_groups(std::vector<double> lengths, const GroupCost& cost,
                              const std::vector<std::vector<int>>& sets, GroupEffort effort) {
  std::sort(lengths.rbegin(), lengths.rend());
  const GroupTimes times(lengths, cost);
  const GroupBounds bounds(lengths, cost, times);
  Order order;
  for (const std::vector<int>& degrees : sets) {
    order.emplace_back(bounds.of(degrees), &degrees);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  GroupAssignment best = best_greedy(lengths, cost, times, bounds, order, effort);
  best.proven = effort == GroupEffort::Best && lengths.size() <= kExactSequences;
  std::int64_t left = best.proven ? kAllSteps : 0;
  for (const auto& [bound, degrees] : order) {
    if (bound >= best.time || left <= 0) {
      best.proven = best.proven && bound >= best.time;
      break;
    }
    GroupSearch search(lengths, cost, *degrees, best.time, std::min(kSteps, left));
    GroupAssignment found = search.run();
    left -= search.steps();
    const bool proven = best.proven && found.proven;
    if (found.time < best.time) {
      best = std::move(found);
    }
    best.proven = proven;
  }
  return best;
}

std::vector<std::vector<int>> degree_sets(int gpus) {
  std::vector<std::vector<int>> all;
  std::vector<int> current;
  const std::function<void(int, int)> extend = [&](int left, int largest) {
    if (left == 0) {
      all.push_back(current);
    }
    for (int log_degree = largest; log_degree >= 0 && left > 0; --log_degree) {
      if ((1 << log_degree) <= left) {
        current.push_back(log_degree);
        extend(left - (1 << log_degree), log_degree);
        current.pop_back();
      }
    }
  };
  extend(gpus, static_cast<int>(std::bit_width(static_cast<unsigned>(gpus))) - 1);
  return all;
}

}  // namespace orrery::search
