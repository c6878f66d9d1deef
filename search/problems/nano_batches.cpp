// SPDX-License-Identifier: Apache-2.0
#include "search/problems/nano_batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "search/problems/milp.hpp"

namespace orrery::search {
namespace {

constexpr int kParts = 2;               // nano-batches
constexpr std::size_t kOrdersKept = 8;  // that the second stage works out
constexpr double kTolerance = 1e-9;     // of a period

}  // namespace

NanoBatches::NanoBatches(const NanoProblem& problem, std::int64_t first)
    : problem_(problem), count_(static_cast<int>(problem.operations.size())) {
  const double share = static_cast<double>(first) / static_cast<double>(problem.tokens);
  for (int part = 0; part < kParts; ++part) {
    for (const NanoProblem::Operation& operation : problem.operations) {
      nanos_.push_back({operation.kind, operation.time * (part == 0 ? share : 1 - share)});
    }
  }
  for (int part = 0; part < kParts; ++part) {
    add_chain(part * count_);
  }
}

// Operations of a part follow each other as stated; those without a predecessor wait for all ends
// of the layer before.
void NanoBatches::add_chain(int offset) {
  std::vector<bool> ends(static_cast<std::size_t>(count_), true);
  for (int index = 0; index < count_; ++index) {
    for (const int before : problem_.operations[static_cast<std::size_t>(index)].after) {
      ends[static_cast<std::size_t>(before)] = false;
      edges_.push_back({offset + before, offset + index, nano(offset + before).time, 0});
    }
  }
  for (int index = 0; index < count_; ++index) {
    for (int end = 0; end < count_; ++end) {
      const bool starts = problem_.operations[static_cast<std::size_t>(index)].after.empty();
      if (starts && ends[static_cast<std::size_t>(end)]) {
        edges_.push_back({offset + end, offset + index, nano(offset + end).time, 1});
      }
    }
  }
}

// All interleavings of both parts, the second one by 0 to n operations behind.
std::vector<NanoBatches::Order> NanoBatches::orders_of(std::size_t kind) const {
  std::vector<int> members;
  for (int index = 0; index < count_; ++index) {
    if (nano(index).kind == kind) {
      members.push_back(index);
    }
  }
  const std::size_t n = members.size();
  std::vector<Order> orders;
  for (std::size_t behind = 0; behind <= n; ++behind) {
    std::vector<bool> second(2 * n, false);
    std::fill(second.begin() + static_cast<std::ptrdiff_t>(n), second.end(), true);
    do {
      Order order;
      std::size_t a = 0;
      std::size_t b = 0;  // the last `behind` operations, of the layer before, come first
      for (const bool is_second : second) {
        if (is_second) {
          order.push_back({count_ + members[(n - behind + b) % n], b < behind ? 1 : 0});
          ++b;
        } else {
          order.push_back({members[a++], 0});
        }
      }
      orders.push_back(std::move(order));
    } while (std::next_permutation(second.begin(), second.end()));
    if (n == 0) {
      break;
    }
  }
  return orders;
}

void NanoBatches::add_turns(const Order& order, std::vector<Edge>& edges) const {
  for (std::size_t index = 0; index < order.size(); ++index) {
    const Turn& from = order[index];
    const Turn& to = order[(index + 1) % order.size()];
    const int wraps = index + 1 == order.size() ? 1 : 0;
    edges.push_back({from.nano, to.nano, nano(from.nano).time, wraps + from.behind - to.behind});
  }
}

// Longest-path potentials for a period; false when precedences form a cycle it cannot hold.
bool NanoBatches::potentials(const std::vector<Edge>& edges, double period,
                             std::vector<double>& start) const {
  start.assign(nanos_.size(), 0);
  const double slack = 1e-12 * std::max(1.0, period);
  for (std::size_t round = 0; round <= nanos_.size(); ++round) {
    bool changed = false;
    for (const Edge& edge : edges) {
      const double least =
          start[static_cast<std::size_t>(edge.from)] + edge.time - edge.lag * period;
      double& known = start[static_cast<std::size_t>(edge.to)];
      if (least > known + slack) {
        known = least;
        changed = true;
      }
    }
    if (!changed) {
      return true;
    }
  }
  return false;
}

// The least period of an order, by bisection between its busiest class and everything in turn.
NanoBatches::Ordered NanoBatches::schedule(const std::vector<Edge>& edges, double busiest,
                                           double limit) const {
  Ordered result;
  double high = 0;
  for (const Nano& nano : nanos_) {
    high += nano.time;
  }
  double low = busiest;
  high = std::min(high, limit) * (1 + kTolerance);
  if (potentials(edges, low * (1 + kTolerance), result.start)) {
    result.period = low * (1 + kTolerance);
    return result;
  }
  if (!potentials(edges, high, result.start)) {
    result.period = std::numeric_limits<double>::infinity();
    return result;
  }
  while (high - low > kTolerance * high) {
    const double middle = (low + high) / 2;
    std::vector<double> start;
    if (potentials(edges, middle, start)) {
      high = middle;
      result.start = std::move(start);
    } else {
      low = middle;
    }
  }
  result.period = high;
  return result;
}

// The orders with the least period.
std::vector<NanoBatches::Ordered> NanoBatches::order() const {
  std::array<std::vector<Order>, sim::kSharingClasses> orders;
  double busiest = 0;
  std::size_t combinations = 1;
  for (std::size_t kind = 0; kind < orders.size(); ++kind) {
    orders[kind] = orders_of(kind);
    combinations *= orders[kind].size();
    double load = 0;
    for (const Nano& nano : nanos_) {
      load += nano.kind == kind ? nano.time : 0;
    }
    busiest = std::max(busiest, load);
  }
  std::vector<Ordered> best;
  for (std::size_t index = 0; index < combinations; ++index) {
    std::vector<Edge> edges = edges_;
    std::size_t rest = index;
    for (const std::vector<Order>& of : orders) {
      add_turns(of[rest % of.size()], edges);
      rest /= of.size();
    }
    const double limit = best.empty() ? std::numeric_limits<double>::infinity()
                                      : best.front().period * (1 + kTolerance);
    const Ordered found = schedule(edges, busiest, limit);
    if (found.period > limit) {
      continue;
    }
    if (!best.empty() && found.period < best.front().period * (1 - kTolerance)) {
      best.clear();
    }
    best.push_back(found);
    if (best.size() >= kOrdersKept && found.period <= busiest * (1 + kTolerance)) {
      break;  // no order is shorter than its busiest class
    }
    if (best.size() > kOrdersKept) {
      best.pop_back();
    }
  }
  return best;
}

// The period, cut wherever a nano-operation starts or ends.
std::vector<NanoBatches::Phase> NanoBatches::phases_of(const Ordered& structure) const {
  const double period = structure.period;
  std::vector<double> cuts = {0, period};
  const auto wrapped = [&](double time) { return time - std::floor(time / period) * period; };
  for (std::size_t nano = 0; nano < nanos_.size(); ++nano) {
    cuts.push_back(wrapped(structure.start[nano]));
    cuts.push_back(wrapped(structure.start[nano] + nanos_[nano].time));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<Phase> phases;
  for (std::size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
    if (cuts[cut + 1] - cuts[cut] < 1e-7 * period) {
      continue;
    }
    const double middle = (cuts[cut] + cuts[cut + 1]) / 2;
    Phase phase;
    for (std::size_t nano = 0; nano < nanos_.size(); ++nano) {
      if (nanos_[nano].time > 0 && wrapped(middle - structure.start[nano]) < nanos_[nano].time) {
        phase.runs.push_back(static_cast<int>(nano));
      }
    }
    if (!phase.runs.empty()) {
      phases.push_back(std::move(phase));
    }
  }
  return phases;
}

NanoBatches::Shared NanoBatches::share(const Ordered& structure,
                                       const sim::SharingCurves& curves) const {
  Shared result;
  result.phases = phases_of(structure);
  Milp program;
  struct Choice {
    std::size_t phase;
    sim::ShareVector vector;
  };
  std::vector<Choice> choices;
  std::vector<std::vector<std::pair<int, double>>> work(nanos_.size());
  for (std::size_t phase = 0; phase < result.phases.size(); ++phase) {
    std::array<bool, sim::kSharingClasses> runs{};
    for (const int nano : result.phases[phase].runs) {
      runs[nanos_[static_cast<std::size_t>(nano)].kind] = true;
    }
    for (const sim::ShareVector& vector : sim::share_vectors(curves, runs)) {
      const int variable = program.add_variable(0, Milp::kInfinity, 1, false);
      choices.push_back({phase, vector});
      for (const int nano : result.phases[phase].runs) {
        const auto slot = static_cast<std::size_t>(nano);
        work[slot].emplace_back(variable, vector.speed[nanos_[slot].kind]);
      }
    }
  }
  for (std::size_t nano = 0; nano < nanos_.size(); ++nano) {
    program.add_row(work[nano], nanos_[nano].time, Milp::kInfinity);
  }
  const auto answer = program.solve();
  if (!answer || answer->values.empty()) {
    return result;
  }
  result.period = answer->objective;
  for (std::size_t index = 0; index < choices.size(); ++index) {
    Phase& phase = result.phases[choices[index].phase];
    phase.time += answer->values[index];
    phase.share.resize(phase.runs.size());
    for (std::size_t run = 0; run < phase.runs.size(); ++run) {
      const Nano& nano = nanos_[static_cast<std::size_t>(phase.runs[run])];
      phase.share[run] += answer->values[index] * choices[index].vector.share[nano.kind];
    }
  }
  return result;
}

std::string NanoBatches::name(int nano) const {
  return fmt::format("{} {}", problem_.operations[static_cast<std::size_t>(nano % count_)].name,
                     nano / count_ + 1);
}

}  // namespace orrery::search
