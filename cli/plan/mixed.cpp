// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/mixed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/progress.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/output_paths.hpp"
#include "cli/plan/fixed_check.hpp"
#include "cli/plan/scale.hpp"
#include "cli/report/mixed_report.hpp"
#include "cli/report/plan_report.hpp"
#include "cli/report/report.hpp"
#include "cli/report/search_json.hpp"
#include "plan/document/plan_text.hpp"
#include "plan/mixed/replay.hpp"
#include "search/mixed/nearest.hpp"

namespace orrery::cli {
namespace {

// Which plans were not even counted.
std::string left_out_text(const search::MixedOutcome& outcome) {
  return outcome.bound_left_out
             ? fmt::format(
                   "; not counted are replicas on parts of several pools beside whole ones, "
                   "of which there are too many to list (--fix tp, pp or micro_batch): none "
                   "takes less than {}",
                   format_duration(*outcome.bound_left_out))
             : "";
}

std::string outcome_text(const search::MixedOutcome& outcome) {
  TextTable table({{"#", Align::Right},
                   {"iteration", Align::Right},
                   {"80 % interval"},
                   {"MFU", Align::Right},
                   {"GPUs", Align::Right},
                   {"layout"}});
  TextTable replicas({{"#", Align::Right}, {"replicas"}});  // a column of their own is too wide
  std::vector<const search::MixedFound*> rows = {&*outcome.best};
  std::vector<const plan::Plan*> shapes = {&outcome.best->plan.shape};
  for (const search::MixedFound& found : outcome.alternatives) {
    rows.push_back(&found);
    shapes.push_back(&found.plan.shape);
  }
  const std::vector<std::string> layouts = plan::layout_texts(shapes);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const search::MixedFound& found = *rows[row];
    const std::string rank = fmt::format("{}", row + 1);
    table.add_row({rank, format_duration(found.simulation.iteration_time),
                   interval_text(found.simulation.interval_low, found.simulation.interval_high),
                   percent(found.simulation.mfu_fraction), fmt::format("{}", found.plan.num_gpus()),
                   layouts[row]});
    replicas.add_row({rank, plan::replicas_text(found.plan)});
  }
  const std::string counts = fmt::format(
      "{}: {} pruned by bound, {}, {} simulated{}", counted(outcome.plans, "plan"),
      outcome.pruned - outcome.infeasible,
      counted(outcome.infeasible, "does not fit", "do not fit"), outcome.simulated,
      outcome.unexplored > 0 ? fmt::format(", {} not reached", outcome.unexplored) : "");
  const std::string proof =
      !outcome.whole_space ? "it ended before all plans of the space were listed"
      : outcome.gap_fraction == 0
          ? "no plan in this space is faster"
          : fmt::format("{}no plan in this space takes less than {} ({} below the best found)",
                        outcome.interrupted || outcome.timed_out ? "stopped early: " : "",
                        format_duration(outcome.lower_bound), percent(outcome.gap_fraction, 2));
  const bool all_known = outcome.alternatives.empty() ||
                         (outcome.pruned == outcome.infeasible && outcome.unexplored == 0);
  return fmt::format("{}\n\n{}\n{}\n{}; {}{}.\n{}\n{}", mixed_subject_text(outcome.best->plan),
                     table.text(), replicas.text(), counts, proof, left_out_text(outcome),
                     others_text(all_known, /*proven=*/false, outcome.gap_fraction == 0,
                                 /*can_prove=*/false),
                     device_table(outcome.best->plan, outcome.best->simulation));
}

Json space_json(const search::MixedOutcome& outcome) {
  return Json::Object{{"plans", outcome.plans},
                      {"pruned", outcome.pruned},
                      {"infeasible", outcome.infeasible},
                      {"unexplored", outcome.unexplored},
                      {"simulated", outcome.simulated},
                      {"whole", outcome.whole_space && !outcome.bound_left_out},
                      {"left_out_lower_bound_s",
                       outcome.bound_left_out ? Json(outcome.bound_left_out->value()) : Json()}};
}

Json outcome_json(const search::MixedOutcome& outcome) {
  Json::Object result = mixed_simulation_json(outcome.best->plan, outcome.best->simulation);
  Json plan = std::move(result.back().second);
  result.pop_back();
  add_search_json(outcome, space_json(outcome), result);
  Json alternatives = Json::array();
  for (const search::MixedFound& found : outcome.alternatives) {
    alternatives.push(mixed_simulation_json(found.plan, found.simulation));
  }
  result.emplace_back("alternatives", std::move(alternatives));
  result.emplace_back("plan", std::move(plan));
  return result;
}

int report_nothing(const search::MixedOutcome& outcome, const plan::MixedPlan& base,
                   const search::Options& how, const PlanOptions& options) {
  const bool stopped = interrupted() || outcome.timed_out;
  const search::MixedNearestChanges changes =
      stopped ? search::MixedNearestChanges()
              : search::nearest_changes(problem_of(options), base, how, outcome.search_time);
  Json list = Json::array();
  std::string text;
  for (const search::MixedNearestChange& change : changes.found) {
    const std::string layout = plan::layout_text(change.plan.shape);
    const std::string replicas = plan::replicas_text(change.plan);
    list.push(Json::Object{{"change", change.change}, {"layout", layout}, {"replicas", replicas}});
    text += fmt::format("\n  {}: {}; {}", change.change, layout, replicas);
  }
  if (options.output.json) {
    print_json(Json::Object{{"space", space_json(outcome)},
                            {"interrupted", outcome.interrupted},
                            {"timed_out", outcome.timed_out},
                            {"search_time_s", outcome.search_time.value()},
                            {"does_not_fit", outcome.closest_overflow},
                            {"nearest_changes", std::move(list)},
                            {"changes_left_open", left_open_json(changes.left_open)},
                            {"plan", Json()}});
  }
  const std::string plans = counted(outcome.plans, "plan");
  const std::string reason =
      outcome.closest_overflow.empty()
          ? fmt::format("stopped before any of {} was simulated", plans)
          : fmt::format("{} on {}: none of {} {}", base.shape.network.spec.name,
                        base.machine->cluster.name, plans,
                        outcome.unexplored > 0 ? "tried so far fits" : "fits");
  note("orrery: " + reason + left_out_text(outcome) + closest_text(outcome.closest_overflow) +
       changes_text(text, changes.left_open));
  return outcome.interrupted ? kInterrupted : kInfeasible;
}

// What only clusters of one kind of nodes have.
void check_options(const PlanOptions& options) {
  const std::pair<const char*, bool> others[] = {
      {"--serve", !options.serve.requests.empty()},
      {"--lengths", !options.lengths.empty()},
      {"--like", !options.like.empty()},
      {"--pareto", !options.pareto.against.empty()},
      {"--robust", options.doubt.robust},
      {"--prove-top", options.prove_top},
      {"--sensitivity", options.doubt.sensitivity},
      {"--space per-block", options.space != "homogeneous"},
      {"--trace", !options.trace_path.empty()},
      {"--mpi", options.scale.mpi},
      {"--project-ranks", !options.scale.project_ranks.empty()}};
  for (const auto& [name, given] : others) {
    if (given) {
      bad_input(name, "not on a cluster of several kinds of nodes",
                "leave it out, or take one kind of nodes");
    }
  }
  check_batch(options);
}

}  // namespace

int plan_mixed(const PlanOptions& options) {
  check_options(options);
  const std::string path =
      options.plan_path.empty() && !options.output.json ? "plan.json" : options.plan_path;
  check_outputs({{"--output", path},
                 {"--report", options.report_path},
                 {"--checkpoint", options.scale.checkpoint},
                 json_path(options.output)},
                files_read(options));
  plan::MixedPlan base = search::mixed_base_plan(problem_of(options));
  const search::Options how = search_options(options);
  how.constraints.check_contradictions();
  check_fixed_experts(base.shape.network.spec, how.constraints);
  note_all(idle_constraints(base.shape, how.constraints), options.output);
  how.constraints.apply(base.shape.execution);
  search::Options kept = how;
  keep_checkpoints(options.scale, kept);
  install_interrupt_handler();
  Progress progress("plan", options.output.quiet);
  const search::MixedOutcome outcome = asked(options, [&] {
    return search::search_mixed(base, kept, [&](const search::ProgressReport& report) {
      progress.update(-1, progress_text(report));
    });
  });
  progress.finish();
  if (!outcome.best) {
    return report_nothing(outcome, base, how, options);
  }
  std::string wrong = search::verify(*outcome.best);
  for (std::size_t k = 0; wrong.empty() && k < outcome.alternatives.size(); ++k) {
    wrong = search::verify(outcome.alternatives[k]);
  }
  ORRERY_CHECK(wrong.empty(), wrong);
  const std::string text = outcome_text(outcome) + restrictions_text(how.constraints);
  if (options.output.json) {
    Json document = outcome_json(outcome);
    if (!options.restrict_files.empty()) {
      document.set("restrictions", restrictions_json(how.constraints));
    }
    print_json(document);
  } else {
    print(text);
  }
  if (!options.output.quiet) {
    note(fmt::format("searched for {}", format_duration(outcome.search_time)));
  }
  if (!path.empty()) {
    write_result(path, plan::to_json(outcome.best->plan).dump() + "\n", options.output);
  }
  if (!options.report_path.empty()) {
    write_result(options.report_path,
                 text + "\n" + explanation(outcome.best->plan, outcome.best->simulation),
                 options.output);
  }
  return outcome.interrupted ? kInterrupted : kOk;
}

int simulate_mixed(const plan::MixedPlan& plan, const std::string& where,
                   const std::string& report_path, const OutputOptions& output) {
  plan::MixedSimulation simulation =
      in_file(where, [&] { return plan::MixedSimulator(plan).run(plan, plan::kIntervalDraws); });
  if (const plan::MemoryVerdict verdict =
          plan::replayed_verdict(plan, plan.shape.memory_reserve, /*jobs=*/0);
      !verdict.fits && !simulation.does_not_fit) {
    simulation.does_not_fit = verdict.text;
  }
  const std::string text = explanation(plan, simulation);
  if (output.json) {
    print_json(mixed_simulation_json(plan, simulation));
  } else {
    print(text);
  }
  if (!report_path.empty()) {
    write_result(report_path, text, output);
  }
  if (simulation.does_not_fit) {
    note(fmt::format("orrery: this plan does not fit: {}", *simulation.does_not_fit));
    return kInfeasible;
  }
  return kOk;
}

}  // namespace orrery::cli
