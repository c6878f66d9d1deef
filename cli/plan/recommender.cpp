// SPDX-License-Identifier: Apache-2.0
// `orrery plan` of a recommendation network: the search of its tables' shardings.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/plan/options.hpp"
#include "cli/report/recommender_report.hpp"
#include "cli/report/search_json.hpp"
#include "plan/recommender/pipeline.hpp"
#include "search/nested_search.hpp"
#include "search/problem.hpp"
#include "search/table_search.hpp"
#include "topologies/cluster.hpp"

namespace orrery::cli {
namespace {

using search::TableFound;
using search::TableOutcome;

// Options that only plans of blocks have.
void check_recommender_options(const PlanOptions& options) {
  const std::pair<const char*, bool> given[] = {
      {"--seq", !options.sequence.empty()},
      {"--forbid", !options.forbid.empty()},
      {"--restrict", !options.restrict_files.empty()},
      {"--allow", !options.allow.empty()},
      {"--lengths", !options.lengths.empty()},
      {"--like", !options.like.empty()},
      {"--pareto", !options.pareto.against.empty()},
      {"--robust", options.doubt.robust},
      {"--prove-top", options.prove_top},
      {"--sensitivity", options.doubt.sensitivity},
      {"--memory-reserve", !options.memory_reserve.empty()},
      {"--serve", !options.serve.requests.empty()},
      {"--trace", !options.trace_path.empty()},
      {"--space per-block", options.space == "per-block"}};
  for (const auto& [name, is_given] : given) {
    if (is_given) {
      bad_input(name, "not for a recommendation network",
                "leave it out; a table keeps the \"sharding\" that its document states");
    }
  }
  const search::TableSearch search;
  for (const auto& [name, is_given] : options.scale.given()) {
    if (is_given) {
      bad_input(name, "not for a recommendation network",
                fmt::format("leave it out; its search ends by itself, after {} partial choices at "
                            "most",
                            search.most_steps));
    }
  }
}

std::string schedule_of(std::string_view name, std::string_view where) {
  const std::vector<std::string> names = {std::string(plan::kNestedSchedule), "sequential"};
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    bad_input(
        where,
        fmt::format("a recommendation network does not run the schedule \"{}\"", printable(name)),
        nearest_hint(name, names));
  }
  return std::string(name);
}

// What --fix and --schedule say, as members of the document.
std::vector<std::pair<std::string, Json>> fixed_fields(const PlanOptions& options) {
  std::vector<std::pair<std::string, Json>> fields;
  for (const std::string& text : options.schedules) {
    fields.emplace_back("schedule", schedule_of(trim(text), "--schedule"));
  }
  for (const std::string& text : options.fix) {
    for (const std::string_view part : split(text, ',')) {
      const std::size_t equals = part.find('=');
      const std::string_view field = trim(part.substr(0, equals));
      const std::string value(equals == std::string_view::npos ? ""
                                                               : trim(part.substr(equals + 1)));
      if (field == "schedule") {
        fields.emplace_back("schedule", schedule_of(value, "--fix schedule"));
      } else if (field == "micro_batches") {
        fields.emplace_back("micro_batches", parse_integer(value, "--fix micro_batches", 1,
                                                           plan::kMostMicroBatches));
      } else {
        bad_input("--fix",
                  fmt::format("a recommendation network has no field \"{}\"", printable(field)),
                  "schedule and micro_batches can be fixed; a table keeps the \"sharding\" that "
                  "its document states");
      }
    }
  }
  return fields;
}

// The network, whether its schedule is given, and the micro-batches to try of the nested one.
struct TableProblem {
  plan::Recommender network;
  bool has_schedule = false;
  std::vector<int> micro_batches;
};

TableProblem table_problem_of(const PlanOptions& options) {
  const search::Overrides overrides = search::split_overrides(options.settings);
  Json document = read_json_file(options.network);
  for (const std::string& text : overrides.network) {
    const std::size_t equals = text.find('=');
    set_path(document, text.substr(0, equals), text.substr(equals + 1), true);
  }
  for (const auto& [field, value] : fixed_fields(options)) {
    document.set(field, value);
  }
  plan::RecommenderRun run;
  run.cluster = topologies::load_cluster(options.cluster, overrides.cluster);
  run.batch =
      options.batch.empty() ? 0 : parse_integer(options.batch, "--batch", 1, limits::kMaxBatch);
  run.precision = options.precision;
  run.profile = options.profile;
  TableProblem problem;
  problem.network = plan::read_recommender(document, options.network, run);
  problem.has_schedule = document.find("schedule") != nullptr;
  problem.micro_batches = document.find("micro_batches") != nullptr
                              ? std::vector<int>{problem.network.micro_batches}
                              : plan::nested_micro_batches(problem.network);
  return problem;
}

TableOutcome search_problem(const TableProblem& problem, const search::TableSearch& how) {
  if (!problem.has_schedule) {
    return search::search_schedules(problem.network, problem.micro_batches, how);
  }
  return problem.network.nested ? search::search_nested(problem.network, problem.micro_batches, how)
                                : search::search_tables(problem.network, how);
}

std::string shardings_text(const plan::Recommender& network) {
  std::string text;
  for (const plan::TableGroup& group : network.tables) {
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", group.name, to_text(group.sharding),
                        group.slices > 1 ? fmt::format(" {}", group.slices) : "");
  }
  constexpr std::size_t kLongest = 100;
  return text.size() > kLongest ? text.substr(0, kLongest) + " ..." : text;
}

std::string table_of(const std::vector<TableFound>& found) {
  TextTable table({{"#", Align::Right},
                   {"iteration", Align::Right},
                   {"schedule"},
                   {"indices ahead", Align::Right},
                   {"samples/s", Align::Right},
                   {"memory", Align::Right},
                   {"tables"}});
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    const plan::RecommenderCost& cost = found[rank].cost;
    const plan::Recommender& network = found[rank].network;
    const double samples = static_cast<double>(network.batch) / cost.iteration().value();
    table.add_row({std::to_string(rank + 1), format_duration(cost.iteration()),
                   network.nested
                       ? fmt::format("nestpipe, {}",
                                     counted(network.micro_batches, "micro-batch", "micro-batches"))
                       : "sequential",
                   network.nested ? "-" : format_duration(cost.pipelined), format_count(samples),
                   format_bytes(cost.fullest_bytes), shardings_text(found[rank].network)});
  }
  return table.text();
}

std::string proof_text(const TableOutcome& outcome) {
  const std::string left =
      outcome.unexplored > 0 ? fmt::format(", {:.6g} not reached", outcome.unexplored) : "";
  const std::string counts = fmt::format(
      "{:.6g} {}: {:.6g} pruned by bound or memory, {} simulated, of which {}{}", outcome.plans,
      outcome.plans == 1 ? "plan" : "plans", outcome.pruned, outcome.simulated,
      counted(outcome.infeasible, "does not fit", "do not fit"), left);
  if (outcome.gap_fraction == 0) {
    return counts + "; no plan in this space is faster.\n";
  }
  return fmt::format("{}; no plan in this space takes less than {} ({} below the best found).\n",
                     counts, format_duration(outcome.lower_bound),
                     percent(outcome.gap_fraction, 2));
}

// A whole number as far as a double holds it exactly.
Json count_json(double count) {
  constexpr double kExact = 0x1p53;
  return count < kExact ? Json(static_cast<std::int64_t>(count)) : Json(count);
}

Json space_json(const TableOutcome& outcome) {
  return Json::Object{{"plans", count_json(outcome.plans)},
                      {"pruned", count_json(outcome.pruned)},
                      {"infeasible", outcome.infeasible},
                      {"unexplored", count_json(outcome.unexplored)},
                      {"simulated", outcome.simulated}};
}

Json outcome_json(const TableOutcome& outcome) {
  Json::Object result = recommender_json(outcome.found.front().network, outcome.found.front().cost);
  Json plan = std::move(result.back().second);
  result.pop_back();
  add_search_json(outcome, space_json(outcome), result);
  Json alternatives = Json::array();
  for (std::size_t i = 1; i < outcome.found.size(); ++i) {
    alternatives.push(recommender_json(outcome.found[i].network, outcome.found[i].cost));
  }
  result.emplace_back("alternatives", std::move(alternatives));
  result.emplace_back("plan", std::move(plan));
  return result;
}

int report_nothing(const TableOutcome& outcome, const PlanOptions& options) {
  if (options.output.json) {
    print_json(Json::Object{{"space", space_json(outcome)},
                            {"interrupted", outcome.interrupted},
                            {"timed_out", outcome.timed_out},
                            {"search_time_s", outcome.search_time.value()},
                            {"does_not_fit", outcome.closest},
                            {"plan", Json()}});
  }
  note(
      fmt::format("orrery: {} on {}: {}: {}; use more GPUs, a smaller batch, or fewer bytes an "
                  "element (table_bytes)",
                  options.network, options.cluster,
                  outcome.timed_out || outcome.interrupted
                      ? "no sharding that fits was found before the search ended; the closest"
                      : "no sharding fits",
                  outcome.closest));
  return outcome.interrupted ? kInterrupted : kInfeasible;
}

}  // namespace

bool is_recommender_file(const std::string& network) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(network, ignored) &&
         plan::is_recommender(read_json_file(network));
}

int plan_recommender(const PlanOptions& options) {
  check_recommender_options(options);
  const TableProblem problem = table_problem_of(options);
  search::TableSearch how;
  how.top = static_cast<std::size_t>(parse_integer(options.top, "--top", 1, 1000));
  how.gap_fraction = parse_number(options.gap, "--gap", 0.0, 1.0);
  how.time_limit = parse_time_limit(options.time_limit);
  how.stop = [] { return interrupted(); };
  install_interrupt_handler();
  const TableOutcome outcome = search_problem(problem, how);
  if (outcome.found.empty()) {
    return report_nothing(outcome, options);
  }
  const TableFound& best = outcome.found.front();
  const std::string text =
      fmt::format("{}\n{}\nThe best plan: {}", table_of(outcome.found), proof_text(outcome),
                  recommender_text(best.network, best.cost));
  if (options.output.json) {
    print_json(outcome_json(outcome));
  } else {
    print(text);
  }
  if (!options.plan_path.empty()) {
    write_result(options.plan_path, plan::to_json(best.network).dump() + "\n", options.output);
  }
  if (!options.report_path.empty()) {
    write_result(options.report_path, text, options.output);
  }
  return outcome.interrupted ? kInterrupted : kOk;
}

}  // namespace orrery::cli
