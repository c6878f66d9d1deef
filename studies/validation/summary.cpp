// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "studies/validation/ranking.hpp"

namespace orrery::studies {
namespace {

using Filter = std::function<bool(const RowResult&)>;
using Config = std::pair<std::string, std::string>;  // source, config_id

struct Counts {
  std::map<Config, double> rows;          // simulated rows of a configuration
  std::map<std::string, double> configs;  // simulated configurations of a source
};

Counts count(const std::vector<RowResult>& rows, const Filter& filter) {
  Counts counts;
  for (const RowResult& row : rows) {
    if (row.simulated() && filter(row) && (counts.rows[{row.source, row.config_id}] += 1) == 1) {
      counts.configs[row.source] += 1;
    }
  }
  return counts;
}

double weight_of(const RowResult& row, const Counts& counts) {
  return 1.0 / (counts.rows.at({row.source, row.config_id}) * counts.configs.at(row.source));
}

std::optional<double> coverage(const std::vector<RowResult>& rows, const Filter& filter) {
  const Filter with_interval = [&](const RowResult& r) { return filter(r) && r.low && r.high; };
  const Counts counts = count(rows, with_interval);
  double inside = 0;
  double total = 0;
  for (const RowResult& row : rows) {
    if (row.simulated() && with_interval(row)) {
      const double weight = weight_of(row, counts);
      inside += *row.low <= row.measured && row.measured <= *row.high ? weight : 0.0;
      total += weight;
    }
  }
  return total > 0 ? std::optional(inside / total) : std::nullopt;
}

ErrorSummary summarise_rows(const std::vector<RowResult>& rows, const Filter& filter) {
  ErrorSummary summary;
  const Counts counts = count(rows, filter);
  std::vector<WeightedValue> sizes;
  std::vector<WeightedValue> errors;
  double weighted = 0;
  double total = 0;
  for (const RowResult& row : rows) {
    if (!filter(row)) {
      continue;
    }
    if (!row.simulated()) {
      ++summary.skipped;
      continue;
    }
    ++summary.simulated;
    const double weight = weight_of(row, counts);
    sizes.push_back({std::abs(row.error()), weight});
    errors.push_back({row.error(), weight});
    weighted += std::abs(row.error()) * weight;
    total += weight;
  }
  if (!sizes.empty()) {
    summary.median = weighted_quantile(sizes, 0.5);
    summary.p90 = weighted_quantile(sizes, 0.9);
    summary.mean = weighted / total;
    summary.bias = weighted_quantile(errors, 0.5);
    summary.coverage80 = coverage(rows, filter);
  }
  return summary;
}

TimeAndMemory summarise_both(const std::vector<RowResult>& rows, const Filter& filter) {
  TimeAndMemory both;
  both.time = summarise_rows(rows, [&](const RowResult& r) { return filter(r) && !r.memory; });
  both.memory = summarise_rows(rows, [&](const RowResult& r) { return filter(r) && r.memory; });
  return both;
}

Judgement judge(const std::vector<RowResult>& rows, const Filter& filter) {
  Judgement judgement{summarise_both(rows, filter), {}, {}, {}};
  std::vector<const RowResult*> chosen;
  for (const RowResult& row : rows) {
    if (filter(row)) {
      chosen.push_back(&row);
    }
  }
  judgement.ranking = rank_plans(chosen);
  judgement.ratio = ratio_errors(chosen);
  judgement.baseline = summarise_rows(baseline_rows(chosen), [](const RowResult&) { return true; });
  return judgement;
}

}  // namespace

double weighted_quantile(std::vector<WeightedValue> values, double q) {
  ORRERY_CHECK(!values.empty(), "a quantile of nothing");
  std::stable_sort(values.begin(), values.end(),
                   [](const auto& a, const auto& b) { return a.value < b.value; });
  double total = 0;
  for (const WeightedValue& entry : values) {
    total += entry.weight;
  }
  const double tolerance = 1e-9 * total;
  double below = 0;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    below += values[i].weight;
    if (std::abs(below - q * total) <= tolerance) {
      return 0.5 * (values[i].value + values[i + 1].value);
    }
    if (below > q * total) {
      return values[i].value;
    }
  }
  return values.back().value;
}

ErrorSummary summarise_errors(const std::vector<const RowResult*>& rows) {
  std::vector<RowResult> chosen;
  for (const RowResult* row : rows) {
    chosen.push_back(*row);
  }
  return summarise_rows(chosen, [](const RowResult&) { return true; });
}

Validation summarise(std::vector<RowResult> rows) {
  Validation validation;
  validation.rows = std::move(rows);
  const std::vector<RowResult>& all = validation.rows;
  const Filter stated = [](const RowResult& r) { return r.full && !r.small; };
  const Filter in_part = [](const RowResult& r) { return !r.full && !r.small; };
  validation.overall = judge(all, stated);
  validation.partial = judge(all, in_part);
  validation.small_messages = summarise_rows(all, [](const RowResult& r) { return r.small; });
  std::map<std::string, std::vector<RowResult>> by_source;
  std::map<std::string, std::vector<RowResult>> by_group;
  for (const RowResult& row : all) {
    by_source[row.source].push_back(row);
    for (const std::string& group : row.groups) {
      by_group[group].push_back(row);
    }
  }
  for (const auto& [name, mine] : by_source) {
    validation.sources[name] = {judge(mine, stated), judge(mine, in_part)};
  }
  for (const auto& [name, mine] : by_group) {
    validation.groups[name] = summarise_rows(mine, [](const RowResult& r) { return !r.small; });
  }
  return validation;
}

}  // namespace orrery::studies
