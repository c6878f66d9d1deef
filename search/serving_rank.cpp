// SPDX-License-Identifier: Apache-2.0
#include "search/serving_rank.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace orrery::search {
namespace {

constexpr double kAsGood = 1.01;

// Leaves those whose figure is at most `slack` times the least.
template <typename Entry>
void narrow(std::vector<const Entry*>& entries, double slack, Seconds ServingFigures::*figure) {
  Seconds least = entries.front()->figures.*figure;
  for (const Entry* entry : entries) {
    least = std::min(least, entry->figures.*figure);
  }
  std::erase_if(entries,
                [&](const Entry* entry) { return entry->figures.*figure > least * slack; });
}

}  // namespace

ServingFigures figures_of(const plan::ServingSimulation& simulation) {
  return {simulation.makespan, simulation.first_token.p99, simulation.per_output_token.p99,
          simulation.latency.mean};
}

// Plans that differ in nothing but the tokens and requests of an iteration are of one kind.
bool ServingRanking::one_kind(const Entry& a, const Entry& b) {
  plan::ServingOptions options = a.plan->serving->options;
  options.token_budget = b.plan->serving->options.token_budget;
  options.max_requests = b.plan->serving->options.max_requests;
  return options == b.plan->serving->options && a.plan->pp == b.plan->pp &&
         a.plan->dp == b.plan->dp && a.plan->blocks == b.plan->blocks &&
         a.plan->execution == b.plan->execution;
}

const ServingRanking::Entry* ServingRanking::best_of(std::vector<const Entry*> entries,
                                                     double as_fast) {
  narrow(entries, as_fast, &ServingFigures::makespan);
  narrow(entries, kAsGood, &ServingFigures::first_token);
  narrow(entries, kAsGood, &ServingFigures::per_output_token);
  // Limits that nothing reaches are the smallest such.
  const auto last = [](const Entry* entry) {
    const plan::ServingOptions& options = entry->plan->serving->options;
    return std::tuple(entry->figures.latency, options.token_budget, options.max_requests);
  };
  return *std::min_element(entries.begin(), entries.end(),
                           [&](const auto* a, const auto* b) { return last(a) < last(b); });
}

void ServingRanking::add(const plan::Plan& plan, const ServingFigures& figures) {
  const Entry entry{&plan, figures, entries_.size()};
  const auto known = std::find_if(kinds_.begin(), kinds_.end(), [&](std::size_t kind) {
    return one_kind(entries_[kind], entry);
  });
  if (known == kinds_.end()) {
    kinds_.push_back(entry.number);
  } else if (figures.makespan < entries_[*known].figures.makespan) {
    *known = entry.number;
  }
  entries_.push_back(entry);
}

Seconds ServingRanking::least() const {
  return std::min_element(
             entries_.begin(), entries_.end(),
             [](const Entry& a, const Entry& b) { return a.figures.makespan < b.figures.makespan; })
      ->figures.makespan;
}

// Whatever was listed before, one of the `top` fastest kinds is left; a plan that is slower than
// the slack on the slowest of these is never the best.
Seconds ServingRanking::limit() const {
  if (kinds_.size() < top_) {
    return Seconds(std::numeric_limits<double>::infinity());
  }
  std::vector<Seconds> fastest;
  for (const std::size_t kind : kinds_) {
    fastest.push_back(entries_[kind].figures.makespan);
  }
  const auto last = fastest.begin() + static_cast<std::ptrdiff_t>(top_) - 1;
  std::nth_element(fastest.begin(), last, fastest.end());
  return *last * (over_time_ ? kAsGood : 1.0);
}

std::int64_t ServingRanking::as_fast() const {
  const Seconds limit = least() * (over_time_ ? kAsGood : 1);
  return std::count_if(entries_.begin(), entries_.end(),
                       [&](const Entry& entry) { return entry.figures.makespan <= limit; });
}

std::vector<std::size_t> ServingRanking::list() const {
  std::vector<const Entry*> left;
  for (const Entry& entry : entries_) {
    left.push_back(&entry);
  }
  std::vector<std::size_t> listed;
  while (!left.empty() && listed.size() < top_) {
    const Entry* best = best_of(left, over_time_ ? kAsGood : 1);
    listed.push_back(best->number);
    std::erase_if(left, [&](const Entry* entry) { return one_kind(*entry, *best); });
  }
  return listed;
}

}  // namespace orrery::search
