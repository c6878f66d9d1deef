// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/plan_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/table.hpp"
#include "studies/validation/ranking.hpp"

namespace orrery::studies {
namespace {

struct Mean {
  double predicted = 0;
  double measured = 0;
  int rows = 0;
};
using Key = std::tuple<bool, std::string, std::string>;  // partial, source, subject
using Plans = std::map<std::string, Mean>;               // by plan in words

std::map<Key, Plans> plans_by_group(const std::vector<RowResult>& rows) {
  std::map<Key, Plans> groups;
  for (const RowResult& row : rows) {
    if (row.simulated() && !row.memory && !row.plan_group.empty()) {
      Mean& plan = groups[{!row.full, row.source, row.plan_group}][row.plan];
      plan.predicted += row.predicted;
      plan.measured += row.measured;
      ++plan.rows;
    }
  }
  return groups;
}

PlanGroup judged(const Key& key, const Plans& plans) {
  PlanGroup group{std::get<1>(key), std::get<2>(key), !std::get<0>(key), plans.size(), 0, {}, {}};
  std::vector<PlanTimes> times;
  PlanTimes chosen;
  double best = 0;
  for (const auto& [name, plan] : plans) {
    const PlanTimes time(plan.predicted / plan.rows, plan.measured / plan.rows);
    const bool first = times.empty();
    if (first || time.first < chosen.first ||
        (time.first == chosen.first && time.second > chosen.second)) {
      chosen = time;
      group.chosen = name;
    }
    if (first || time.second < best) {
      best = time.second;
      group.best = name;
    }
    times.push_back(time);
  }
  group.regret = first_choice_regret(times);
  return group;
}

std::size_t count_good(const std::vector<PlanGroup>& groups, bool full) {
  return static_cast<std::size_t>(
      std::count_if(groups.begin(), groups.end(),
                    [&](const PlanGroup& group) { return group.full == full && group.is_good(); }));
}

std::size_t count(const std::vector<PlanGroup>& groups, bool full) {
  return static_cast<std::size_t>(std::count_if(
      groups.begin(), groups.end(), [&](const PlanGroup& group) { return group.full == full; }));
}

}  // namespace

std::vector<PlanGroup> plan_groups(const std::vector<RowResult>& rows, std::size_t least) {
  std::vector<PlanGroup> groups;
  for (const auto& [key, plans] : plans_by_group(rows)) {
    if (plans.size() >= least) {
      groups.push_back(judged(key, plans));
    }
  }
  return groups;
}

std::string plan_groups_text(const std::vector<PlanGroup>& groups) {
  TextTable table({{"source"},
                   {"network and cluster"},
                   {"plans", Align::Right},
                   {"regret", Align::Right},
                   {"predicted best"},
                   {"measured best"}});
  for (const PlanGroup& group : groups) {
    table.add_row({group.full ? group.source : group.source + " (partial)", group.subject,
                   fmt::format("{}", group.plans), fmt::format("{:.1f} %", 100 * group.regret),
                   group.chosen, group.chosen == group.best ? "the same" : group.best});
  }
  std::string text = fmt::format("\n{}", table.text());
  for (const bool full : {true, false}) {
    const std::size_t eligible = count(groups, full);
    if (eligible > 0) {
      const std::size_t good = count_good(groups, full);
      text += fmt::format(
          "{} of {} groups of {} or more plans{}: the plan predicted best is the measured best or "
          "within {:.0f} % of it ({:.1f} %).\n",
          good, eligible, kLeastPlans, full ? "" : " (partial)", 100 * kGoodChoice,
          100.0 * static_cast<double>(good) / static_cast<double>(eligible));
    }
  }
  return text;
}

Json plan_groups_json(const std::vector<PlanGroup>& groups) {
  Json list = Json::array();
  for (const PlanGroup& group : groups) {
    list.push(Json::Object{{"source", group.source},
                           {"subject", group.subject},
                           {"confidence", group.full ? "full" : "partial"},
                           {"plans", static_cast<std::int64_t>(group.plans)},
                           {"regret", group.regret},
                           {"predicted_best", group.chosen},
                           {"measured_best", group.best}});
  }
  const std::size_t eligible = count(groups, true);
  const std::size_t good = count_good(groups, true);
  return Json::Object{
      {"eligible", static_cast<std::int64_t>(eligible)},
      {"within_3_percent", static_cast<std::int64_t>(good)},
      {"share",
       eligible > 0 ? Json(static_cast<double>(good) / static_cast<double>(eligible)) : Json()},
      {"groups", std::move(list)}};
}

}  // namespace orrery::studies
