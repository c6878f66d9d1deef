// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/doubt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/report/per_block_report.hpp"
#include "cli/report/report.hpp"
#include "plan/document/plan_text.hpp"
#include "search/robust.hpp"
#include "search/sensitivity.hpp"

namespace orrery::cli {
namespace {

constexpr double kShare = 0.1;  // of each hardware parameter
constexpr std::size_t kRows = 12;

search::RobustOptions robust_options(const DoubtOptions& options) {
  const auto given = [](const std::string& text, const char* option, std::int64_t low,
                        std::int64_t high, std::int64_t otherwise) {
    return text.empty() ? otherwise : parse_integer(text, option, low, high);
  };
  search::RobustOptions robust;
  robust.draws = static_cast<int>(given(options.draws, "--draws", 2, 100'000, 128));
  if (robust.draws % 2 != 0) {
    bad_input("--draws", fmt::format("{} is odd", robust.draws), "draws come in pairs");
  }
  robust.seed =
      static_cast<std::uint64_t>(given(options.seed, "--seed", 0, std::int64_t{1} << 62, 1));
  robust.most = static_cast<int>(given(options.candidates, "--candidates", 1, 10'000, 64));
  return robust;
}

std::string considered_text(const search::Robust& robust) {
  const std::string draws = fmt::format(
      "{}{} draws (seed {})", robust.draws,
      robust.draws < robust.options.draws ? fmt::format(" of {}", robust.options.draws) : "",
      robust.options.seed);
  const std::string plans = counted(std::ssize(robust.plans), "plan");
  const std::string reach = percent(robust.reach - 1);
  const std::string farthest = percent(robust.farthest_considered);
  std::string compared = fmt::format(
      "{} compared the fastest {}{}, up to {} slower than the best; its interval "
      "reaches {} ({}).",
      draws, plans,
      robust.met_alone     ? " that the search met"
      : robust.ended_early ? " found before the search for others ended early"
                           : "",
      farthest, reach,
      robust.met_alone || robust.ended_early ? "others may lie within it" : "raise --candidates");
  if (robust.complete) {
    compared = fmt::format(
        "{} compared {}: all up to {} slower than the best, as far as its interval reaches.", draws,
        plans, reach);
  }
  return fmt::format("{}\nThe slowest plan that wins a draw is {} slower than the best.\n",
                     compared, percent(robust.farthest_winner));
}

std::string robust_text(const search::Robust& robust) {
  if (robust.plans.empty()) {
    return "\nStopped before plans were compared under errors of the cost model.\n";
  }
  std::vector<TextTable::Column> columns = {{"best in", Align::Right},
                                            {"mean loss", Align::Right},
                                            {"worst", Align::Right},
                                            {"iteration", Align::Right},
                                            {"layout"}};
  if (robust.met_alone) {  // per block: more lines of each below
    columns.back() = {"layout of the first block"};
    columns.insert(columns.begin(), {"#", Align::Right});
  }
  TextTable table(columns);
  std::vector<const plan::Plan*> plans;
  for (const search::RobustPlan& plan : robust.plans) {
    plans.push_back(&plan.found.plan);
  }
  plans.resize(std::min(kRows, plans.size()));
  const std::vector<std::string> layouts = plan::layout_texts(plans);
  std::string blocks;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const search::RobustPlan& plan = robust.plans[i];
    if (i > 0 && plan.probability_best == 0) {
      break;
    }
    std::vector<std::string> row = {
        percent(plan.probability_best), percent(plan.mean_loss, 2), percent(plan.worst_loss, 2),
        format_duration(plan.found.simulation.iteration_time), layouts[i]};
    if (robust.met_alone) {
      row.insert(row.begin(), fmt::format("{}", i + 1));
      blocks += blocks_text(i + 1, plan.found.plan);
    }
    table.add_row(row);
  }
  return fmt::format(
      "\nHow often each plan is best when the cost model errs as its calibration did:\n\n{}{}{}",
      table.text(), blocks, considered_text(robust));
}

Json robust_json(const search::Robust& robust) {
  Json plans = Json::array();
  for (const search::RobustPlan& plan : robust.plans) {
    plans.push(Json::Object{
        {"probability_best", plan.probability_best},
        {"mean_loss", plan.mean_loss},
        {"worst_loss", plan.worst_loss},
        {"iteration_time_s", plan.found.simulation.iteration_time.value()},
        {"layout", plan::layout_text(plan.found.plan)},
        {"plan", plan.probability_best > 0 ? plan::to_json(plan.found.plan) : Json()}});
  }
  return Json::Object{{"draws", robust.draws},
                      {"seed", static_cast<std::int64_t>(robust.options.seed)},
                      {"reach", robust.reach - 1},
                      {"complete", robust.complete},
                      {"met_alone", robust.met_alone},
                      {"ended_early", robust.ended_early},
                      {"farthest_considered", robust.farthest_considered},
                      {"farthest_winner", robust.farthest_winner},
                      {"plans", std::move(plans)}};
}

double gain(Seconds time, Seconds best) { return 1 - time / best; }

// What another plan is beside the best one.
std::string other_text(const plan::Plan& other, const plan::Plan& best) {
  const std::string layout = plan::layout_texts({&other, &best}).front();
  const bool reads_alike = layout == plan::layout_text(best);
  return !reads_alike                  ? layout
         : other.blocks == best.blocks ? "the same"
                                       : "the same with other layouts by block";
}

std::string sensitivity_text(const std::vector<search::Sensitivity>& rows,
                             const search::Found& best) {
  TextTable table({{fmt::format("{:.0f} % better", 100 * kShare)},
                   {"this plan gains", Align::Right},
                   {"planned again", Align::Right},
                   {"then the best plan is"}});
  const Seconds time = best.simulation.iteration_time;
  for (const search::Sensitivity& row : rows) {
    table.add_row({row.parameter, percent(gain(row.same_plan, time), 2),
                   row.searched ? percent(gain(row.replanned, time), 2) : "out of time",
                   row.searched ? other_text(row.plan, best.plan) : ""});
  }
  if (best.plan.cluster.gpu.power_watts > 0 && best.plan.profile.power.picojoules_per_flop <= 0) {
    table.add_row({"power limit", "not modelled", "", ""});
  }
  return fmt::format("\nWhat better hardware would save of the iteration time:\n\n{}",
                     table.text());
}

Json sensitivity_json(const std::vector<search::Sensitivity>& rows, Seconds best) {
  Json list = Json::array();
  for (const search::Sensitivity& row : rows) {
    Json::Object entry = {{"parameter", row.parameter},
                          {"path", row.path},
                          {"share", kShare},
                          {"same_plan_s", row.same_plan.value()},
                          {"same_plan_gain", gain(row.same_plan, best)}};
    if (row.searched) {
      entry.emplace_back("replanned_s", row.replanned.value());
      entry.emplace_back("replanned_gain", gain(row.replanned, best));
      entry.emplace_back("gap", row.gap_fraction);
      entry.emplace_back("layout", plan::layout_text(row.plan));
    }
    list.push(std::move(entry));
  }
  return list;
}

}  // namespace

Seconds left_of(Seconds limit, Seconds passed) {
  return limit.value() > 0 ? std::max(limit - passed, Seconds(1e-9)) : limit;
}

void check_doubt_options(const DoubtOptions& options) { (void)robust_options(options); }

int compared_plans(const DoubtOptions& options) {
  return options.robust ? robust_options(options).most : 0;
}

void add_doubt_options(const Command& command, DoubtOptions& options) {
  command.add_flag("--robust", options.robust,
                   "how often each near-best plan is best when the cost model errs");
  command.add_option("--draws", options.draws, "draws of --robust (128)");
  command.add_option("--seed", options.seed, "of --robust (1)");
  command.add_option("--candidates", options.candidates, "plans that --robust compares (64)");
  command.add_flag("--sensitivity", options.sensitivity,
                   "what 10 % more of each hardware parameter would buy");
}

Doubts doubts_of(const DoubtOptions& options, const search::Problem& problem,
                 const plan::Plan& base, search::Options how, const search::Outcome& outcome,
                 const std::function<void(const search::ProgressReport&)>& progress) {
  Doubts doubts;
  const auto begin = std::chrono::steady_clock::now();
  if (options.robust) {
    const search::Robust robust =
        search::find_robust(base, how, outcome, robust_options(options), progress);
    doubts.text += robust_text(robust);
    doubts.json.emplace_back("robust", robust_json(robust));
  }
  if (options.sensitivity) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    how.time_limit = left_of(how.time_limit, outcome.search_time + Seconds(passed.count()));
    const std::vector<search::Sensitivity> rows =
        search::find_sensitivity(problem, base, how, *outcome.best, kShare);
    doubts.text += sensitivity_text(rows, *outcome.best);
    doubts.json.emplace_back("sensitivity",
                             sensitivity_json(rows, outcome.best->simulation.iteration_time));
  }
  return doubts;
}

}  // namespace orrery::cli
