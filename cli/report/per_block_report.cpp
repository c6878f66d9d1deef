// SPDX-License-Identifier: Apache-2.0
#include "cli/report/per_block_report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/common.hpp"
#include "cli/report/plan_report.hpp"
#include "cli/report/report.hpp"
#include "plan/document/plan_text.hpp"

namespace orrery::cli {
namespace {

std::string proof_text(const search::PerBlockOutcome& outcome) {
  const search::Outcome& found = outcome.outcome;
  const bool early = found.interrupted || found.timed_out;
  std::string text =
      fmt::format("{} plans on {}: {} bounded, {} drafted, {} simulated", outcome.size.text(),
                  counted(outcome.meshes, "mesh", "meshes"), counted(outcome.pipelines, "pipeline"),
                  outcome.drafted, counted(found.simulated, "plan"));
  if (outcome.homogeneous.value() > 0) {
    const double gain = 1.0 - found.best->simulation.iteration_time / outcome.homogeneous;
    text += fmt::format("; with one layout for all blocks {} ({} more)",
                        format_duration(outcome.homogeneous), percent(gain / (1.0 - gain), 2));
  }
  const char* plans = outcome.size.exact == 0 ? "with one layout for all blocks" : "in this space";
  if (found.gap_fraction == 0) {
    return text + fmt::format("; no plan {} is faster.\n", plans);
  }
  return text + fmt::format("; {}no plan {} takes less than {} ({} below the best).\n",
                            early ? "stopped early: " : "", plans,
                            format_duration(found.lower_bound), percent(found.gap_fraction, 2));
}

}  // namespace

std::string unproven_text(const std::vector<std::string>& schedules, const std::string& hint) {
  if (schedules.empty()) {
    return "";
  }
  return fmt::format(
      "Not proven of layouts for every block of {}: there, beside plans with one layout, only some "
      "near the best were simulated{}.\n",
      fmt::join(schedules, ", "), hint);
}

std::string blocks_text(std::size_t rank, const plan::Plan& plan) {
  return fmt::format("#{} stages {}\n   blocks {}\n", rank, plan::stages_text(plan),
                     fmt::join(plan::block_texts(plan), "\n   blocks "));
}

std::string per_block_text(const search::PerBlockOutcome& outcome) {
  const search::Outcome& found = outcome.outcome;
  TextTable table({{"#", Align::Right},
                   {"iteration", Align::Right},
                   {"80 % interval"},
                   {"MFU", Align::Right},
                   {"bubble", Align::Right},
                   {"memory", Align::Right},
                   {"layout of the first block"}});
  std::string blocks;
  const auto add = [&](std::size_t rank, const search::Found& one) {
    table.add_row({fmt::format("{}", rank), format_duration(one.simulation.iteration_time),
                   interval_text(one.simulation.interval_low, one.simulation.interval_high),
                   percent(one.simulation.mfu_fraction), percent(one.simulation.bubble_fraction),
                   format_bytes(largest_memory(one.simulation).bytes()),
                   plan::layout_text(one.plan)});
    blocks += blocks_text(rank, one.plan);
  };
  add(1, *found.best);
  for (std::size_t index = 0; index < found.alternatives.size(); ++index) {
    add(index + 2, found.alternatives[index]);
  }
  const std::string hint =
      outcome.best_gains_by_name ? fmt::format(" (--schedule {})", found.best->plan.schedule) : "";
  return fmt::format("{}\n\n{}\n{}\n{}", subject_text(found.best->plan), table.text(), blocks,
                     proof_text(outcome) + unproven_text(outcome.unproven, hint));
}

Json per_block_space_json(const search::PerBlockOutcome& outcome) {
  const Json plans = outcome.size.exact >= 0 ? Json(outcome.size.exact) : Json(outcome.size.text());
  Json unproven = Json::array();
  for (const std::string& schedule : outcome.unproven) {
    unproven.push(schedule);
  }
  return Json::Object{{"name", "per-block"},
                      {"plans", plans},
                      {"log10_plans", outcome.size.log10},
                      {"meshes", outcome.meshes},
                      {"pipelines", outcome.pipelines},
                      {"drafted", outcome.drafted},
                      {"simulated", outcome.outcome.simulated},
                      {"unproven_schedules", std::move(unproven)}};
}

std::string per_block_nothing_text(const search::PerBlockOutcome& outcome, const plan::Plan& base) {
  const bool proven = std::isinf(outcome.outcome.lower_bound.value());
  return nothing_text(outcome.outcome, base, outcome.size.text() + " plans", proven);
}

Json per_block_json(const search::PerBlockOutcome& outcome) {
  const search::Outcome& found = outcome.outcome;
  Json::Object result = outcome_json(found).as_object();
  for (auto& [name, value] : result) {
    if (name == "space") {
      value = per_block_space_json(outcome);
    }
  }
  result.insert(
      result.begin(),
      {{"homogeneous_time_s", outcome.homogeneous.value()},
       {"blocks", fmt::format("{}", fmt::join(plan::block_texts(found.best->plan), "; "))},
       {"stages", plan::stages_text(found.best->plan)}});
  return result;
}

}  // namespace orrery::cli
