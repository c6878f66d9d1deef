// SPDX-License-Identifier: Apache-2.0
#include "search/problems/group_loads.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace orrery::search {

namespace {

constexpr double kNoGroup = std::numeric_limits<double>::infinity();

}  // namespace

GroupTimes::GroupTimes(const std::vector<double>& lengths, const GroupCost& cost)
    : degrees_(cost.bandwidth.size()) {
  for (const double length : lengths) {
    for (std::size_t d = 0; d < degrees_; ++d) {
      times_.push_back(cost.of(length, static_cast<int>(d)));
    }
  }
}

GroupBounds::GroupBounds(const std::vector<double>& lengths, const GroupCost& cost,
                         const GroupTimes& times)
    : constant_(cost.constant), degrees_(times.degrees()) {
  for (int smallest = 0; smallest < degrees_; ++smallest) {
    std::vector<double> cheapest(lengths.size(), kNoGroup);
    for (int largest = 0; largest < degrees_; ++largest) {
      std::vector<double> from(lengths.size() + 1, 0.0);
      double sum = 0;
      for (std::size_t i = 0; i < lengths.size() && largest >= smallest; ++i) {
        cheapest[i] =
            std::min(cheapest[i], times.of(i, largest) * static_cast<double>(1 << largest));
        sum += cheapest[i];
      }
      for (std::size_t i = lengths.size(); i-- > 0 && largest >= smallest;) {
        from[i] = from[i + 1] + cheapest[i];
      }
      least_work_.push_back(sum);
      work_from_.push_back(std::move(from));
    }
  }
  for (int degree = 0; degree < degrees_; ++degree) {
    const bool fits = lengths.front() <= cost.tokens_per_gpu * static_cast<double>(1 << degree);
    longest_.push_back(fits ? times.of(0, degree) : kNoGroup);
  }
}

double GroupBounds::of(const std::vector<int>& degrees) const {
  double gpus = 0;
  double longest = kNoGroup;
  for (const int degree : degrees) {
    gpus += static_cast<double>(1 << degree);
    longest = std::min(longest, longest_[static_cast<std::size_t>(degree)]);
  }
  return constant_ + std::max(least_work_[pair_of(degrees)] / gpus, longest);
}

GroupLoads::GroupLoads(const std::vector<double>& lengths, const GroupCost& cost,
                       const GroupTimes& times, std::vector<int> degrees)
    : lengths_(lengths),
      cost_(cost),
      times_(times),
      degrees_(std::move(degrees)),
      load_(degrees_.size(), 0.0),
      tokens_(degrees_.size(), 0.0),
      group_of_(lengths.size(), 0) {}

bool GroupLoads::fill(double bound, const std::vector<double>& work_from) {
  std::vector<Class> classes = classes_of_groups();
  double gpus = 0;
  for (const int degree : degrees_) {
    gpus += static_cast<double>(1 << degree);
  }
  const double most = bound * gpus * (1 + 1e-9);  // sums are rounded
  double work = 0;
  std::size_t i = 0;
  for (; i < lengths_.size() && work + work_from[i] <= most; ++i) {
    Class* best = nullptr;
    std::size_t place = 0;
    double soonest = bound;
    for (Class& equal : classes) {
      if (end_with(i, equal.front()) >= soonest) {
        continue;
      }
      const std::size_t first = first_that_holds(i, equal);
      if (first < equal.size() && end_with(i, equal[first]) < soonest) {
        soonest = end_with(i, equal[first]);
        best = &equal;
        place = first;
      }
    }
    if (best == nullptr) {
      break;
    }
    const std::size_t group = (*best)[place];
    work += (soonest - load_[group]) * static_cast<double>(1 << degrees_[group]);
    put(i, group);
    sort_in(*best, place);
  }
  return i == lengths_.size();
}

void GroupLoads::improve() {
  while (move_one()) {
  }
}

GroupAssignment GroupLoads::assignment() const {
  return {*std::max_element(load_.begin(), load_.end()), degrees_, group_of_, false};
}

std::vector<GroupLoads::Class> GroupLoads::classes_of_groups() const {
  std::vector<Class> classes;
  for (std::size_t group = 0; group < degrees_.size(); ++group) {
    if (group == 0 || degrees_[group] != degrees_[group - 1]) {
      classes.emplace_back();
    }
    classes.back().push_back(group);
  }
  return classes;
}

// The place in a class of its first group that holds the sequence; its size when none does.
std::size_t GroupLoads::first_that_holds(std::size_t sequence, const Class& groups) const {
  const double room = cost_.tokens_per_gpu * static_cast<double>(1 << degrees_[groups.front()]) -
                      lengths_[sequence];
  std::size_t place = 0;
  while (place < groups.size() && tokens_[groups[place]] > room) {
    ++place;
  }
  return place;
}

// Moves the group at `place`, whose load has grown, behind those that are loaded less.
void GroupLoads::sort_in(Class& groups, std::size_t place) const {
  const std::size_t group = groups[place];
  const auto after = [&](std::size_t other) {
    return std::pair(load_[other], other) < std::pair(load_[group], group);
  };
  for (; place + 1 < groups.size() && after(groups[place + 1]); ++place) {
    groups[place] = groups[place + 1];
  }
  groups[place] = group;
}

double GroupLoads::end_with(std::size_t sequence, std::size_t group) const {
  return load_[group] + (load_[group] == 0 ? cost_.constant : 0) +
         times_.of(sequence, degrees_[group]);
}

bool GroupLoads::holds(std::size_t sequence, std::size_t group) const {
  return tokens_[group] + lengths_[sequence] <=
         cost_.tokens_per_gpu * static_cast<double>(1 << degrees_[group]);
}

void GroupLoads::put(std::size_t sequence, std::size_t group) {
  load_[group] = end_with(sequence, group);
  tokens_[group] += lengths_[sequence];
  group_of_[sequence] = static_cast<int>(group);
}

bool GroupLoads::move_one() {
  const auto slowest =
      static_cast<std::size_t>(std::max_element(load_.begin(), load_.end()) - load_.begin());
  std::size_t moved = lengths_.size();
  std::size_t target = 0;
  double best = load_[slowest] * (1 - 1e-9);
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    for (std::size_t group = 0; group < degrees_.size(); ++group) {
      if (group_of_[i] != static_cast<int>(slowest) || group == slowest || !holds(i, group)) {
        continue;
      }
      const double left = load_[slowest] - times_.of(i, degrees_[slowest]);
      const double most = std::max(left, end_with(i, group));
      if (most < best) {
        best = most;
        moved = i;
        target = group;
      }
    }
  }
  if (moved == lengths_.size()) {
    return false;
  }
  load_[slowest] -= times_.of(moved, degrees_[slowest]);
  tokens_[slowest] -= lengths_[moved];
  put(moved, target);
  return true;
}

}  // namespace orrery::search
