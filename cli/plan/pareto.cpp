// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/pareto.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/progress.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/report/per_block_report.hpp"
#include "cli/report/plan_report.hpp"
#include "cli/report/report.hpp"
#include "plan/document/plan_text.hpp"
#include "studies/pareto_picture.hpp"

namespace orrery::cli {
namespace {

using search::ParetoFrontier;
using search::ParetoPoint;

// The last point needs least; without one `below` says what the search found.
std::string below_text(const ParetoFrontier& frontier) {
  if (frontier.points.empty() || frontier.kind != search::ParetoKind::Memory) {
    return frontier.below;
  }
  const ParetoPoint& last = frontier.points.back();
  if (!frontier.complete || frontier.below.empty()) {
    return "";
  }
  if (!frontier.below_is_proven) {
    return "No plan that needs less was found, which is no proof that there is none";
  }
  const std::vector<plan::StageMemory>& stages = last.found.simulation.memory;
  const auto fullest = std::max_element(
      stages.begin(), stages.end(),
      [](const plan::StageMemory& a, const plan::StageMemory& b) { return a.total() < b.total(); });
  return fmt::format("Below {}{} a GPU nothing fits; the largest part of the last plan is {}",
                     frontier.has_every_point() ? "" : "the next budget under ",
                     format_bytes(last.memory.bytes()), fullest->peak_owner);
}

// With as many digits more as it takes, up to three, to read otherwise than neighbours that differ.
std::vector<std::string> told_apart(const std::vector<ByteCount>& counts) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    int digits = 0;
    const auto reads_as = [&](std::size_t other) {
      return counts[i] != counts[other] &&
             format_bytes(counts[i].bytes(), digits) == format_bytes(counts[other].bytes(), digits);
    };
    while (digits < 3 &&
           ((i > 0 && reads_as(i - 1)) || (i + 1 < counts.size() && reads_as(i + 1)))) {
      ++digits;
    }
    texts.push_back(format_bytes(counts[i].bytes(), digits));
  }
  return texts;
}

// Which plans are proven not to be faster than a point.
std::string_view no_more_text(search::ParetoKind kind) {
  switch (kind) {
    case search::ParetoKind::Memory:
      return "no plan that needs no more memory than a point";
    case search::ParetoKind::Gpus:
      return "no plan on no more GPUs than a point";
    case search::ParetoKind::Cost:
      break;
  }
  return "no plan that costs no more than a point";
}

std::string proof_text(const ParetoFrontier& frontier) {
  double gap = 0;
  for (const ParetoPoint& point : frontier.points) {
    gap = std::max(gap, point.gap_fraction);
  }
  std::string text =
      fmt::format("{} over {}, {} simulated; ", counted(frontier.searches, "search", "searches"),
                  frontier.plans >= 0 ? counted(frontier.plans, "plan") : "more than 9.2e+18 plans",
                  frontier.simulated);
  if (!frontier.complete && frontier.unsearched.empty()) {
    text += "stopped early: points may be missing; ";
  }
  if (!frontier.unsearched.empty()) {
    text += fmt::format("points may be missing, these parts were not searched:\n  {}",
                        fmt::join(frontier.unsearched, "\n  "));
  } else if (gap == 0) {
    text += fmt::format("{} is faster.", no_more_text(frontier.kind));
  } else {
    text += fmt::format("{} is more than {} faster.", no_more_text(frontier.kind), percent(gap, 2));
  }
  if (frontier.space == search::SpaceKind::PerBlock &&
      frontier.kind == search::ParetoKind::Memory) {
    text +=
        "\nBudgets of memory were a sixteenth of a GPU apart: there may be points between them.";
  }
  const std::string below = below_text(frontier);
  return text + (below.empty() ? "" : "\n" + below) + "\n" +
         unproven_text(frontier.unproven_schedules);
}

std::string frontier_text(const ParetoFrontier& frontier) {
  const bool priced = frontier.points.front().usd_per_iteration > 0;
  std::vector<TextTable::Column> columns = {
      {"#", Align::Right}, {"iteration", Align::Right}, {"memory", Align::Right}};
  const bool replayed = frontier.kind == search::ParetoKind::Memory;
  if (replayed) {
    columns.push_back({"replayed", Align::Right});
  }
  columns.push_back({"GPUs", Align::Right});
  if (priced) {
    columns.push_back({"USD/iteration", Align::Right});
  }
  columns.push_back({"tokens/s/GPU", Align::Right});
  columns.push_back({"gap", Align::Right});
  const bool per_block = frontier.space == search::SpaceKind::PerBlock;
  columns.push_back({per_block ? "layout of the first block" : "layout"});
  TextTable table(columns);
  std::string blocks;
  std::vector<const plan::Plan*> plans;
  std::vector<ByteCount> memory;
  std::vector<ByteCount> peaks;
  for (const ParetoPoint& point : frontier.points) {
    plans.push_back(&point.found.plan);
    memory.push_back(point.memory);
    peaks.push_back(point.replayed);
  }
  const std::vector<std::string> memory_texts = told_apart(memory);
  const std::vector<std::string> peak_texts = told_apart(peaks);
  const std::vector<std::string> layouts = plan::layout_texts(plans);
  for (std::size_t i = 0; i < frontier.points.size(); ++i) {
    const ParetoPoint& point = frontier.points[i];
    const plan::Simulation& simulation = point.found.simulation;
    std::vector<std::string> row = {fmt::format("{}", i + 1),
                                    format_duration(simulation.iteration_time), memory_texts[i]};
    if (replayed) {
      row.push_back(peak_texts[i]);
    }
    row.push_back(fmt::format("{}", point.gpus));
    if (priced) {
      row.push_back(fmt::format("{:.4g}", point.usd_per_iteration));
    }
    row.push_back(fmt::format("{:.1f}", simulation.tokens_per_second_per_gpu));
    row.push_back(percent(point.gap_fraction, 2));
    row.push_back(layouts[i]);
    table.add_row(row);
    blocks += per_block ? blocks_text(i + 1, point.found.plan) : "";
  }
  return fmt::format("{}\nIteration time against {}:\n\n{}\n{}{}",
                     subject_text(frontier.points.front().found.plan), to_text(frontier.kind),
                     table.text(), blocks.empty() ? blocks : blocks + "\n", proof_text(frontier));
}

Json string_list(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) {
    list.push(text);
  }
  return list;
}

Json frontier_json(const ParetoFrontier& frontier) {
  Json points = Json::array();
  for (const ParetoPoint& point : frontier.points) {
    Json::Object entry = {{"gpu_memory_bytes", point.memory.value()}, {"gpus", point.gpus}};
    if (point.replayed.value() > 0) {
      entry.emplace_back("replayed_memory_bytes", point.replayed.value());
    }
    if (point.usd_per_iteration > 0) {
      entry.emplace_back("usd_per_iteration", point.usd_per_iteration);
    }
    entry.emplace_back("certificate", Json::Object{{"lower_bound_s", point.lower_bound.value()},
                                                   {"gap", point.gap_fraction}});
    for (auto& member : simulation_json(point.found.plan, point.found.simulation)) {
      entry.push_back(std::move(member));
    }
    points.push(std::move(entry));
  }
  return Json::Object{
      {"pareto", std::string(to_text(frontier.kind))},
      {"complete", frontier.complete},
      {"unsearched", string_list(frontier.unsearched)},
      {"searches", frontier.searches},
      {"space", Json::Object{{"plans", frontier.plans >= 0 ? Json(frontier.plans) : Json()},
                             {"simulated", frontier.simulated}}},
      {"below", below_text(frontier)},
      {"unproven_schedules", string_list(frontier.unproven_schedules)},
      {"points", std::move(points)}};
}

}  // namespace

void add_pareto_options(const Command& command, ParetoOptions& options) {
  command.add_option("--pareto", options.against,
                     "the frontier of iteration time against memory, gpus or cost");
  command.add_option("--pareto-picture", options.picture_path, "the frontier as SVG");
}

int plan_pareto(const ParetoOptions& pareto, const ScaleOptions& scale,
                const search::Problem& problem, const plan::Plan& base, search::Options how,
                const std::string& plan_path, const OutputOptions& output) {
  keep_checkpoints(scale, how);
  const search::ParetoKind kind = search::parse_pareto_kind(pareto.against, "--pareto");
  check_writable(pareto.picture_path);
  install_interrupt_handler();
  Progress progress("plan", output.quiet);
  std::string so_far = "first search";
  const auto done = [&](const ParetoFrontier& frontier) {
    so_far = fmt::format("{}, {}", counted(frontier.searches, "search", "searches"),
                         counted(std::ssize(frontier.points), "point"));
    progress.update(-1, so_far);
  };
  const auto under_way = [&](const search::ProgressReport& report) {
    progress.update(-1, fmt::format("{}; {}", so_far, progress_text(report)));
  };
  const ParetoFrontier frontier = search::find_pareto(kind, problem, base, how, done, under_way);
  progress.finish();
  for (const ParetoPoint& point : frontier.points) {
    const std::string wrong = search::verify(point.found);
    ORRERY_CHECK(wrong.empty(), wrong);
  }
  if (output.json) {
    print_json(frontier_json(frontier));
  }
  if (frontier.points.empty()) {
    note(fmt::format("orrery: no plan {}: {}", frontier.below_is_proven ? "fits" : "was found",
                     frontier.below));
    return interrupted() ? kInterrupted : kInfeasible;
  }
  if (!output.json) {
    print(frontier_text(frontier));
  }
  if (!plan_path.empty()) {
    write_result(plan_path, plan::to_json(frontier.points.front().found.plan).dump() + "\n",
                 output);
  }
  if (!pareto.picture_path.empty()) {
    write_result(pareto.picture_path, studies::pareto_svg(frontier), output);
  }
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace orrery::cli
