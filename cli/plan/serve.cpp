// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/serve.hpp"

#include <fmt/format.h>

#include <memory>

#include "base/interrupt.hpp"
#include "base/progress.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/plan/fixed_product.hpp"
#include "cli/report/search_json.hpp"
#include "cli/report/serving_report.hpp"
#include "models/positions.hpp"
#include "plan/serving/serving.hpp"
#include "search/serving_search.hpp"
#include "search/serving_space.hpp"

namespace orrery::cli {
namespace {

using search::ServingFound;
using search::ServingOutcome;

std::string space_text(const ServingOutcome& outcome) {
  std::string text = fmt::format(
      "{}: {}, {} cannot be faster by their bound, {} simulated, {} a latency limit",
      counted(outcome.plans, "plan"), counted(outcome.infeasible, "does not fit", "do not fit"),
      outcome.pruned, outcome.simulated, counted(outcome.late, "of them breaks", "of them break"));
  if (outcome.unexplored > 0) {
    text += fmt::format(", {} not reached", outcome.unexplored);
  }
  if (outcome.gap_fraction > 0) {
    text += fmt::format(
        "; stopped early: no plan in this space takes less than {} ({} below the "
        "best found)",
        format_duration(outcome.lower_bound), percent(outcome.gap_fraction, 2));
  }
  return text;
}

// Why the first plan is the first, and what a row stands for.
std::string order_text(const ServingOutcome& outcome) {
  const std::string order =
      outcome.as_fast > 1
          ? fmt::format(
                "{} plans serve the most requests a second{}; of these the first has the "
                "least time to the\nfirst token, then per output token (p99, within 1 %).",
                outcome.as_fast, outcome.over_time ? ", within 1 %" : "")
          : "The first plan serves the most requests a second.";
  return (outcome.streams
              ? "No plan fits with all parameters on its devices: those of some layers or of "
                "all come from host or disk.\n"
              : "") +
         order +
         " Each is the best of those that differ in tokens and\n"
         "requests of an iteration alone.";
}

std::string table_of(const std::vector<ServingFound>& found) {
  TextTable table({{"tokens/s/GPU", Align::Right},
                   {"requests/s", Align::Right},
                   {"first token p99", Align::Right},
                   {"output token p99", Align::Right},
                   {"KV peak", Align::Right},
                   {"plan", Align::Left}});
  for (const ServingFound& entry : found) {
    const plan::ServingSimulation& simulation = entry.simulation;
    table.add_row(
        {rate_text(simulation.tokens_per_second_per_gpu, 1),
         rate_text(simulation.requests_per_second, 2), format_duration(simulation.first_token.p99),
         simulation.per_output_token.count == 0 ? "-"
                                                : format_duration(simulation.per_output_token.p99),
         percent(simulation.kv_peak_fraction), serving_layout_text(entry.plan)});
  }
  return table.text();
}

Json space_json(const ServingOutcome& outcome) {
  return Json::Object{{"plans", outcome.plans},         {"infeasible", outcome.infeasible},
                      {"pruned", outcome.pruned},       {"unexplored", outcome.unexplored},
                      {"simulated", outcome.simulated}, {"late", outcome.late},
                      {"as_fast", outcome.as_fast}};
}

Json outcome_json(const ServingOutcome& outcome) {
  const ServingFound& best = outcome.found.front();
  Json document = serving_json(best.plan, best.simulation);
  Json::Object searched;
  add_search_json(outcome, space_json(outcome), searched);
  for (auto& [name, value] : searched) {
    document.set(name, std::move(value));
  }
  Json others = Json::array();
  for (std::size_t index = 1; index < outcome.found.size(); ++index) {
    const ServingFound& entry = outcome.found[index];
    const plan::Percentiles& per_token = entry.simulation.per_output_token;
    others.push(
        Json::Object{{"layout", serving_layout_text(entry.plan)},
                     {"tokens_per_s_per_gpu", entry.simulation.tokens_per_second_per_gpu},
                     {"makespan_s", entry.simulation.makespan.value()},
                     {"time_to_first_token_p99_s", entry.simulation.first_token.p99.value()},
                     {"time_per_output_token_p99_s",
                      per_token.count == 0 ? Json() : Json(per_token.p99.value())}});
  }
  document.set("alternatives", std::move(others));
  return document;
}

// Why there is no answer, and what would help.
std::pair<std::string, std::string> nothing_text(const ServingOutcome& outcome) {
  const std::string relax = "raise the limit, lower the rate of requests or use more GPUs";
  if (outcome.infeasible == outcome.plans) {
    return {"no plan fits: " + outcome.closest, outcome.nearest};
  }
  if (outcome.unexplored == 0) {
    return {"every plan that fits breaks a latency limit", relax};
  }
  if (outcome.simulated == 0) {
    return {fmt::format("stopped before any of {} was simulated", counted(outcome.plans, "plan")),
            "give it more time"};
  }
  return {"stopped early: every plan simulated so far breaks a latency limit",
          "give it more time, or " + relax};
}

int report_nothing(const ServingOutcome& outcome, const OutputOptions& output) {
  const auto [reason, nearest] = nothing_text(outcome);
  if (output.json) {
    print_json(Json::Object{{"feasible", false},
                            {"reason", reason},
                            {"nearest", nearest},
                            {"space", space_json(outcome)},
                            {"interrupted", outcome.interrupted},
                            {"timed_out", outcome.timed_out},
                            {"search_time_s", outcome.search_time.value()}});
  }
  note(fmt::format("orrery: {}; {}\n{}", reason, nearest, space_text(outcome)));
  return outcome.interrupted ? kInterrupted : kInfeasible;
}

// Of degrees for which several values are tried the search itself finds those that go together.
void check_degrees(const search::ServingFixes& fixed, const topologies::Cluster& cluster) {
  FixedProduct degrees;
  for (const char* field : {"tp", "cp", "dp", "pp"}) {
    const auto entry = fixed.find(field);
    if (entry != fixed.end() && entry->second.size() == 1) {
      degrees.add(field, search::serving_values(fixed, field, {}).front());
    }
  }
  check_degrees(degrees, cluster);
}

}  // namespace

void add_serve_options(const Command& command, ServeOptions& options) {
  command.add_option("--serve", options.requests,
                     "serve these requests instead of training: JSON document or CSV trace");
  command.add_option("--max-first-token", options.first_token_limit,
                     "with --serve: limit on the time to first token at p99, e.g. \"2 s\"");
  command.add_option("--max-output-token", options.output_token_limit,
                     "with --serve: limit on the time per output token at p99, e.g. \"50 ms\"");
}

int plan_serving(plan::Plan base, const ServeOptions& options, search::ServingSearch how,
                 const ServeFiles& files, const OutputOptions& output) {
  check_degrees(how.fixed, base.cluster);
  auto serving = std::make_shared<plan::Serving>();
  serving->requests = plan::load_requests(options.requests);
  base.sequence = plan::longest_request(plan::generate_requests(serving->requests));
  plan::check_generates_text(base.network.spec, "serving plan");
  models::check_positions(base.network.spec, base.sequence, options.requests);
  base.serving = std::move(serving);
  if (!options.first_token_limit.empty()) {
    how.limits.first_token_p99 = parse_duration(options.first_token_limit, "--max-first-token");
  }
  if (!options.output_token_limit.empty()) {
    how.limits.per_output_token_p99 =
        parse_duration(options.output_token_limit, "--max-output-token");
  }
  install_interrupt_handler();
  Progress progress("plan", output.quiet);
  const ServingOutcome outcome = search::search_serving(
      base, how, [&](const std::string& text) { progress.update(-1, text); });
  progress.finish();
  if (outcome.found.empty()) {
    return report_nothing(outcome, output);
  }
  const ServingFound& best = outcome.found.front();
  const std::string text = table_of(outcome.found) + "\n" + order_text(outcome) + "\n\n" +
                           space_text(outcome) + "\n\nThe best plan:\n\n" +
                           serving_text(best.plan, best.simulation);
  for (const std::string& idle : search::idle_serving_fixes(best.plan, how.fixed)) {
    if (!output.quiet) {
      note("orrery: " + idle);
    }
  }
  if (output.json) {
    print_json(outcome_json(outcome));
  } else {
    print(text);
  }
  if (!files.plan.empty()) {
    write_result(files.plan, plan::to_json(best.plan).dump() + "\n", output);
  }
  if (!files.report.empty()) {
    write_result(files.report, text, output);
  }
  return outcome.interrupted ? kInterrupted : kOk;
}

}  // namespace orrery::cli
