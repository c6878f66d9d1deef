// SPDX-License-Identifier: Apache-2.0
#include "cli/report/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/common.hpp"
#include "cli/report/report.hpp"
#include "cli/report/search_json.hpp"
#include "plan/document/plan_text.hpp"

namespace orrery::cli {
namespace {

void add_row(TextTable& table, std::size_t rank, const search::Found& found,
             const std::string& layout) {
  const plan::Simulation& simulation = found.simulation;
  table.add_row({fmt::format("{}", rank), format_duration(simulation.iteration_time),
                 interval_text(simulation.interval_low, simulation.interval_high),
                 fmt::format("{:.1f}", simulation.tokens_per_second_per_gpu),
                 percent(simulation.mfu_fraction), percent(simulation.bubble_fraction),
                 format_bytes(largest_memory(simulation).bytes()),
                 layout + staleness_text(simulation)});
}

bool stopped_early(const search::Outcome& outcome) {
  return outcome.interrupted || outcome.timed_out;
}

std::string counts_text(const search::Outcome& outcome) {
  std::string text =
      fmt::format("{}: {} pruned by bound, {}, {} simulated", counted(outcome.plans, "plan"),
                  outcome.pruned - outcome.infeasible,
                  counted(outcome.infeasible, "does not fit", "do not fit"), outcome.simulated);
  if (outcome.unexplored > 0) {
    text += fmt::format(", {} not reached", outcome.unexplored);
  }
  return text;
}

std::string proof_text(const search::Outcome& outcome) {
  if (outcome.gap_fraction == 0) {
    return counts_text(outcome) + "; no plan in this space is faster.\n";
  }
  const char* early = stopped_early(outcome) ? "stopped early: " : "";
  if (outcome.gap_fraction >= 1) {
    return fmt::format("{}; {}no bound is known on other plans.\n", counts_text(outcome), early);
  }
  return fmt::format("{}; {}no plan in this space takes less than {} ({} below the best found).\n",
                     counts_text(outcome), early, format_duration(outcome.lower_bound),
                     percent(outcome.gap_fraction, 2));
}

Json space_json(const search::Outcome& outcome) {
  return Json::Object{{"plans", outcome.plans},
                      {"pruned", outcome.pruned},
                      {"infeasible", outcome.infeasible},
                      {"unexplored", outcome.unexplored},
                      {"simulated", outcome.simulated}};
}

}  // namespace

std::string progress_text(const search::ProgressReport& report) {
  if (report.to_draw > 0) {
    return fmt::format("{} of {} draws of the errors of times", report.drawn, report.to_draw);
  }
  if (report.simulated == 0) {
    return "no plan fits so far";
  }
  return fmt::format("{} simulated, best {}, none below {} (gap {})",
                     counted(report.simulated, "plan"), format_duration(report.best),
                     format_duration(report.bound), percent(report.gap_fraction));
}

std::string others_text(bool all_known, bool proven, bool closed, bool can_prove) {
  if (all_known) {
    return "";
  }
  if (proven) {
    return "Nor is any that is not listed faster than the last one listed.\n";
  }
  if (!closed) {
    return "The others are the best of those simulated so far; any plan may lie between them.\n";
  }
  return fmt::format(
      "The others are the best of those simulated before the proof was complete; plans pruned by "
      "bound may lie between them{}.\n",
      can_prove ? " (--prove-top)" : "");
}

std::string outcome_text(const search::Outcome& outcome) {
  TextTable table({{"#", Align::Right},
                   {"iteration", Align::Right},
                   {"80 % interval"},
                   {"tokens/s/GPU", Align::Right},
                   {"MFU", Align::Right},
                   {"bubble", Align::Right},
                   {"memory", Align::Right},
                   {"layout"}});
  std::vector<const search::Found*> rows = {&*outcome.best};
  std::vector<const plan::Plan*> plans = {&outcome.best->plan};
  for (const search::Found& found : outcome.alternatives) {
    rows.push_back(&found);
    plans.push_back(&found.plan);
  }
  const std::vector<std::string> layouts = plan::layout_texts(plans);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    add_row(table, i + 1, *rows[i], layouts[i]);
  }
  const bool all_known = outcome.alternatives.empty() ||
                         (outcome.pruned == outcome.infeasible && outcome.unexplored == 0);
  const char* draws = outcome.best->simulation.has_interval()
                          ? ""
                          : "stopped early: the errors of times were not drawn.\n";
  const std::string counting =
      attention_counting_text(outcome.best->plan, outcome.best->simulation);
  return fmt::format("{}\n\n{}\n{}{}{}{}", subject_text(outcome.best->plan), table.text(), counting,
                     proof_text(outcome), draws,
                     others_text(all_known, outcome.top_is_proven, outcome.gap_fraction == 0,
                                 /*can_prove=*/true));
}

Json outcome_json(const search::Outcome& outcome, const search::Outcome* apart) {
  Json::Object result = simulation_json(outcome.best->plan, outcome.best->simulation);
  const Json plan = std::move(result.back().second);
  result.pop_back();
  add_search_json(outcome, space_json(outcome), result);
  result.emplace_back("top_is_proven", outcome.top_is_proven);
  Json alternatives = Json::array();
  for (const search::Found& found : outcome.alternatives) {
    alternatives.push(simulation_json(found.plan, found.simulation));
  }
  result.emplace_back("alternatives", std::move(alternatives));
  if (apart != nullptr && apart->best) {
    result.emplace_back("asynchronous", outcome_json(*apart));
  }
  result.emplace_back("plan", plan);
  return result;
}

std::string nothing_text(const search::Outcome& outcome, const plan::Plan& base,
                         const std::string& plans, bool proven) {
  if (stopped_early(outcome) && outcome.closest_overflow.empty()) {
    return fmt::format("stopped before any of {} was simulated", plans);
  }
  const std::string who = fmt::format("{} on {}", base.network.spec.name, base.cluster.name);
  if (outcome.plans == 1) {
    return fmt::format("{}: this plan does not fit: {}", who, outcome.closest_overflow);
  }
  const std::string none = stopped_early(outcome)
                               ? fmt::format("none of {} tried so far fits", plans)
                           : proven ? fmt::format("none of {} fits", plans)
                                    : fmt::format("none that was tried fits, of {}", plans);
  return fmt::format("{}: {}{}", who, none, closest_text(outcome.closest_overflow));
}

std::string closest_text(std::string_view overflow) {
  constexpr std::string_view kBetween = "; ";
  std::string text = overflow.empty() ? "" : "\nthe closest:";
  while (!overflow.empty()) {
    const std::size_t end = std::min(overflow.find(kBetween), overflow.size());
    text += fmt::format("\n  {}", overflow.substr(0, end));
    overflow.remove_prefix(std::min(end + kBetween.size(), overflow.size()));
  }
  return text;
}

std::string nothing_text(const search::Outcome& outcome, const plan::Plan& base) {
  return nothing_text(outcome, base, counted(outcome.plans, "plan"), true);
}

std::string changes_text(const search::NearestChanges& changes) {
  std::string text;
  for (const search::NearestChange& change : changes.found) {
    text += fmt::format("\n  {}: {}", change.change, plan::layout_text(change.plan));
  }
  return changes_text(text, changes.left_open);
}

std::string changes_text(const std::string& lines, const std::vector<std::string>& left_open) {
  std::string text = lines.empty() ? "" : "\na plan fits with any one of:" + lines;
  if (!left_open.empty()) {
    text += fmt::format("\nsearches that were ended before they found a plan: {}",
                        fmt::join(left_open, ", "));
  }
  return text;
}

Json left_open_json(const std::vector<std::string>& left_open) {
  Json list = Json::array();
  for (const std::string& kind : left_open) {
    list.push(kind);
  }
  return list;
}

Json nothing_json(const search::Outcome& outcome, const search::NearestChanges& changes) {
  Json list = Json::array();
  for (const search::NearestChange& change : changes.found) {
    list.push(Json::Object{{"change", change.change}, {"layout", plan::layout_text(change.plan)}});
  }
  return Json::Object{{"space", space_json(outcome)},
                      {"interrupted", outcome.interrupted},
                      {"timed_out", outcome.timed_out},
                      {"search_time_s", outcome.search_time.value()},
                      {"does_not_fit", outcome.closest_overflow},
                      {"nearest_changes", std::move(list)},
                      {"changes_left_open", left_open_json(changes.left_open)},
                      {"plan", Json()}};
}

}  // namespace orrery::cli
