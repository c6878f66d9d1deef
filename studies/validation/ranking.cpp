// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/ranking.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>

#include "base/error.hpp"

namespace orrery::studies {
namespace {

using Rows = std::vector<const RowResult*>;
using Group = std::pair<std::string, std::string>;  // source, key

// Pairs i < j with values[i] > values[j]; sorts the values (merge sort).
std::int64_t sort_counting_swaps(std::vector<double>& values) {
  std::vector<double> merged(values.size());
  std::int64_t swaps = 0;
  for (std::size_t width = 1; width < values.size(); width *= 2) {
    for (std::size_t begin = 0; begin < values.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, values.size());
      const std::size_t end = std::min(begin + 2 * width, values.size());
      std::size_t left = begin;
      std::size_t right = middle;
      for (std::size_t out = begin; out < end; ++out) {
        const bool take_left = right == end || (left < middle && values[left] <= values[right]);
        swaps += take_left ? 0 : static_cast<std::int64_t>(middle - left);
        merged[out] = take_left ? values[left++] : values[right++];
      }
    }
    values.swap(merged);
  }
  return swaps;
}

// Pairs of equal neighbours in a sorted range.
template <class Values>
std::int64_t tied_pairs(const Values& sorted) {
  std::int64_t pairs = 0;
  std::int64_t run = 1;
  for (std::size_t i = 1; i <= sorted.size(); ++i) {
    const bool same = i < sorted.size() && sorted[i] == sorted[i - 1];
    pairs += same ? 0 : run * (run - 1) / 2;
    run = same ? run + 1 : 1;
  }
  return pairs;
}

std::map<Group, Rows> grouped(const Rows& rows, std::string RowResult::*key) {
  std::map<Group, Rows> groups;
  for (const RowResult* row : rows) {
    if (row->simulated() && !row->memory && !(row->*key).empty()) {
      groups[{row->source, row->*key}].push_back(row);
    }
  }
  return groups;
}

std::vector<PlanTimes> plans_of(const Rows& rows) {
  std::map<std::string, std::pair<PlanTimes, int>> plans;  // sums and counts
  for (const RowResult* row : rows) {
    auto& [sums, count] = plans[row->plan];
    sums.first += row->predicted;
    sums.second += row->measured;
    ++count;
  }
  std::vector<PlanTimes> times;
  for (const auto& [name, plan] : plans) {
    times.emplace_back(plan.first.first / plan.second, plan.first.second / plan.second);
  }
  return times;
}

}  // namespace

std::optional<double> kendall_tau(std::vector<PlanTimes> plans) {
  std::sort(plans.begin(), plans.end());
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const PlanTimes& plan : plans) {
    predicted.push_back(plan.first);
    measured.push_back(plan.second);
  }
  const auto count = static_cast<std::int64_t>(plans.size());
  const std::int64_t pairs = count * (count - 1) / 2;
  const std::int64_t tied_both = tied_pairs(plans);
  const std::int64_t tied_predicted = tied_pairs(predicted);
  const std::int64_t discordant = sort_counting_swaps(measured);
  const std::int64_t tied_measured = tied_pairs(measured);
  const std::int64_t concordant = pairs - tied_predicted - tied_measured + tied_both - discordant;
  const double scale = std::sqrt(static_cast<double>(pairs - tied_predicted) *
                                 static_cast<double>(pairs - tied_measured));
  if (scale == 0) {
    return std::nullopt;
  }
  return static_cast<double>(concordant - discordant) / scale;
}

double first_choice_regret(const std::vector<PlanTimes>& plans) {
  ORRERY_CHECK(!plans.empty(), "the first choice among no plans");
  double least = std::numeric_limits<double>::infinity();
  double best = least;
  for (const auto& [predicted, measured] : plans) {
    least = std::min(least, predicted);
    best = std::min(best, measured);
  }
  double chosen = 0;
  int ties = 0;
  for (const auto& [predicted, measured] : plans) {
    chosen += predicted == least ? measured : 0.0;
    ties += predicted == least ? 1 : 0;
  }
  return chosen / ties / best - 1.0;
}

Ranking rank_plans(const Rows& rows) {
  Ranking ranking;
  std::vector<double> regrets;
  std::map<std::string, std::vector<double>> taus;  // by source
  for (const auto& [group, members] : grouped(rows, &RowResult::plan_group)) {
    const std::vector<PlanTimes> plans = plans_of(members);
    if (plans.size() < 2) {
      continue;
    }
    ++ranking.groups;
    ranking.plans += plans.size();
    regrets.push_back(first_choice_regret(plans));
    const std::optional<double> tau = plans.size() > 2 ? kendall_tau(plans) : std::nullopt;
    if (tau) {
      taus[group.first].push_back(*tau);
    }
  }
  if (regrets.empty()) {
    return ranking;
  }
  std::vector<WeightedValue> weighted;
  for (const double regret : regrets) {
    weighted.push_back({regret, 1.0});
  }
  ranking.regret_median = weighted_quantile(weighted, 0.5);
  ranking.regret_worst = *std::max_element(regrets.begin(), regrets.end());
  weighted.clear();
  double sum = 0;
  for (const auto& [source, values] : taus) {
    for (const double tau : values) {
      sum += tau / static_cast<double>(values.size());
      weighted.push_back({tau, 1.0});
    }
  }
  if (!taus.empty()) {
    ranking.tau = sum / static_cast<double>(taus.size());
    ranking.tau_median = weighted_quantile(weighted, 0.5);
  }
  return ranking;
}

ErrorSummary ratio_errors(const Rows& rows) {
  const auto groups = grouped(rows, &RowResult::network_group);
  std::map<std::string, double> runs;  // of a source, in groups with a pair
  for (const auto& [group, members] : groups) {
    runs[group.first] += members.size() > 1 ? static_cast<double>(members.size()) : 0.0;
  }
  ErrorSummary summary;
  std::vector<WeightedValue> errors;
  double total = 0;
  double sum = 0;
  for (const auto& [group, members] : groups) {
    for (std::size_t i = 0; i + 1 < members.size(); ++i) {
      const std::size_t end = std::min(members.size(), i + 1 + kRatioNeighbours);
      for (std::size_t j = i + 1; j < end; ++j) {
        const double ratio = (members[i]->predicted / members[j]->predicted) /
                             (members[i]->measured / members[j]->measured);
        const double error = std::max(ratio, 1.0 / ratio) - 1.0;
        const double weight = 1.0 / (runs.at(group.first) * static_cast<double>(end - i - 1));
        errors.push_back({error, weight});
        total += weight;
        sum += weight * error;
      }
    }
  }
  summary.simulated = errors.size();
  if (!errors.empty()) {
    summary.median = weighted_quantile(errors, 0.5);
    summary.p90 = weighted_quantile(errors, 0.9);
    summary.mean = sum / total;
  }
  return summary;
}

std::vector<RowResult> baseline_rows(const Rows& rows) {
  std::map<Group, Rows> by_gpu;
  for (const RowResult* row : rows) {
    if (row->simulated() && row->flops_per_gpu > 0) {
      by_gpu[{row->source, row->gpu}].push_back(row);
    }
  }
  std::vector<RowResult> results;
  for (const auto& [key, mine] : by_gpu) {
    // The mean of |c x - 1| over rows, x = FLOPs / measured, is least at the median of 1 / x
    // weighted by x; c is the inverse of the rate.
    std::vector<WeightedValue> inverse_rates;
    for (const RowResult* row : mine) {
      const double rate = row->flops_per_gpu / row->measured;
      inverse_rates.push_back({1.0 / rate, rate});
    }
    const double seconds_per_flop = weighted_quantile(inverse_rates, 0.5);
    for (const RowResult* row : mine) {
      results.push_back(*row);
      results.back().predicted = row->flops_per_gpu * seconds_per_flop;
    }
  }
  return results;
}

}  // namespace orrery::studies
