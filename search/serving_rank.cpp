// SPDX-License-Identifier: Apache-2.0
#include "search/serving_rank.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace orrery::search {
namespace {

constexpr double kAsGood = 1.01;

using Entries = std::vector<const ServingFound*>;

// Plans that differ in nothing but the tokens and requests of an iteration are of one kind.
bool one_kind(const ServingFound& a, const ServingFound& b) {
  plan::ServingOptions options = a.plan.serving->options;
  options.token_budget = b.plan.serving->options.token_budget;
  options.max_requests = b.plan.serving->options.max_requests;
  return options == b.plan.serving->options && a.plan.pp == b.plan.pp && a.plan.dp == b.plan.dp &&
         a.plan.blocks == b.plan.blocks && a.plan.execution == b.plan.execution;
}

// Leaves those whose figure is at most `slack` times the least.
template <typename Figure>
void narrow(Entries& entries, double slack, Figure figure) {
  Seconds least = figure(entries.front()->simulation);
  for (const ServingFound* entry : entries) {
    least = std::min(least, figure(entry->simulation));
  }
  std::erase_if(entries, [&](const ServingFound* entry) {
    return figure(entry->simulation) > least * slack;
  });
}

const ServingFound* best_of(Entries entries, double as_fast) {
  using plan::ServingSimulation;
  narrow(entries, as_fast, [](const ServingSimulation& one) { return one.makespan; });
  narrow(entries, kAsGood, [](const ServingSimulation& one) { return one.first_token.p99; });
  narrow(entries, kAsGood, [](const ServingSimulation& one) { return one.per_output_token.p99; });
  // Limits that nothing reaches are the smallest such.
  const auto last = [](const ServingFound* entry) {
    const plan::ServingOptions& options = entry->plan.serving->options;
    return std::tuple(entry->simulation.latency.mean, options.token_budget, options.max_requests);
  };
  return *std::min_element(entries.begin(), entries.end(),
                           [&](const auto* a, const auto* b) { return last(a) < last(b); });
}

}  // namespace

void ServingRanking::add(ServingFound found) {
  const auto known = std::find_if(kinds_.begin(), kinds_.end(),
                                  [&](std::size_t kind) { return one_kind(found_[kind], found); });
  if (known == kinds_.end()) {
    kinds_.push_back(found_.size());
  } else if (found.simulation.makespan < found_[*known].simulation.makespan) {
    *known = found_.size();
  }
  found_.push_back(std::move(found));
}

Seconds ServingRanking::least() const {
  return std::min_element(found_.begin(), found_.end(),
                          [](const ServingFound& a, const ServingFound& b) {
                            return a.simulation.makespan < b.simulation.makespan;
                          })
      ->simulation.makespan;
}

// Whatever was listed before, one of the `top` fastest kinds is left; a plan that is slower than
// the slack on the slowest of these is never the best.
Seconds ServingRanking::limit() const {
  if (kinds_.size() < top_) {
    return Seconds(std::numeric_limits<double>::infinity());
  }
  std::vector<Seconds> fastest;
  for (const std::size_t kind : kinds_) {
    fastest.push_back(found_[kind].simulation.makespan);
  }
  const auto last = fastest.begin() + static_cast<std::ptrdiff_t>(top_) - 1;
  std::nth_element(fastest.begin(), last, fastest.end());
  return *last * (over_time_ ? kAsGood : 1.0);
}

std::int64_t ServingRanking::as_fast() const {
  const Seconds limit = least() * (over_time_ ? kAsGood : 1);
  return std::count_if(found_.begin(), found_.end(), [&](const ServingFound& found) {
    return found.simulation.makespan <= limit;
  });
}

std::vector<ServingFound> ServingRanking::list() const {
  Entries left;
  for (const ServingFound& found : found_) {
    left.push_back(&found);
  }
  std::vector<ServingFound> listed;
  while (!left.empty() && listed.size() < top_) {
    const ServingFound* best = best_of(left, over_time_ ? kAsGood : 1);
    listed.push_back(*best);
    std::erase_if(left, [&](const ServingFound* entry) { return one_kind(*entry, *best); });
  }
  return listed;
}

}  // namespace orrery::search
