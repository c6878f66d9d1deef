// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/like.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/interrupt.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/command/common.hpp"
#include "cli/report/report.hpp"
#include "plan/document/plan_text.hpp"
#include "search/nearest_parts.hpp"

namespace orrery::cli {
namespace {

constexpr Seconds kMoment(1e-3);  // of a limit that is used up: there is a first plan all the same

double loss(const plan::Simulation& simulation, Seconds best) {
  return simulation.iteration_time / best - 1;
}

}  // namespace

std::vector<BaselineResult> compare_baselines(const std::vector<const search::Baseline*>& baselines,
                                              const plan::Plan& base,
                                              const search::Options& options, Seconds searched) {
  std::vector<BaselineResult> compared;
  const search::Deadline deadline(options, searched);
  search::Options own = options;
  for (const search::Baseline* baseline : baselines) {
    if (interrupted()) {
      break;
    }
    if (options.time_limit.value() > 0) {
      const auto share = 1 / static_cast<double>(baselines.size() - compared.size());
      own.time_limit = std::max(deadline.left() * share, kMoment);
    }
    compared.push_back({baseline, search::choose(*baseline, base, own)});
  }
  return compared;
}

std::string baselines_text(const std::vector<BaselineResult>& compared, Seconds best) {
  TextTable table({{"search"},
                   {"plans", Align::Right},
                   {"iteration", Align::Right},
                   {"loses", Align::Right},
                   {"memory", Align::Right},
                   {"layout it chooses"}});
  std::string notes;
  for (const auto& [baseline, choice] : compared) {
    const std::string plans = fmt::format("{}", choice.plans);
    std::string note = choice.note;
    if (!choice.found) {
      table.add_row({std::string(baseline->name), plans, "none", "", "", ""});
    } else {
      const plan::Simulation& simulation = choice.found->simulation;
      const bool fits = !simulation.does_not_fit;
      table.add_row({std::string(baseline->name), plans, format_duration(simulation.iteration_time),
                     fits ? percent(loss(simulation, best)) : "exceeds",
                     format_bytes(largest_memory(simulation).bytes()),
                     plan::layout_text(choice.found->plan)});
      note += fits ? "" : (note.empty() ? "" : "; ") + *simulation.does_not_fit;
    }
    if (!note.empty()) {
      notes += fmt::format("{}: {}\n", baseline->name, note);
    }
  }
  return fmt::format(
      "\nWhat limited searches would have chosen, and lost against the best plan:\n\n{}{}",
      table.text(), notes.empty() ? "" : "\n" + notes);
}

Json baselines_json(const std::vector<BaselineResult>& compared, Seconds best) {
  Json list = Json::array();
  for (const auto& [baseline, choice] : compared) {
    Json::Object entry = {{"name", std::string(baseline->name)},
                          {"description", std::string(baseline->description)},
                          {"plans", choice.plans},
                          {"note", choice.note},
                          {"feasible", choice.found && !choice.found->simulation.does_not_fit}};
    if (choice.found) {
      entry.emplace_back("loss", loss(choice.found->simulation, best));
      for (auto& member : simulation_json(choice.found->plan, choice.found->simulation)) {
        entry.push_back(std::move(member));
      }
    }
    list.push(std::move(entry));
  }
  return list;
}

}  // namespace orrery::cli
