// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/idle_note.hpp"
#include "cli/command/output_paths.hpp"
#include "cli/command/suggestion_note.hpp"
#include "cli/command/together.hpp"
#include "cli/plan/mixed.hpp"
#include "cli/plan/trace.hpp"
#include "cli/report/recommender_report.hpp"
#include "cli/report/report.hpp"
#include "cli/report/serving_report.hpp"
#include "plan/replay/memory_replay.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kSimulateExamples = R"(
Examples:
  orrery simulate plan.json
  orrery simulate plan.json --trace trace.json --report report.txt
  orrery plan llama3-8b hgx-h100:1 --batch 64 --json | orrery simulate -)";

// Beyond this many passes the critical path is left out.
constexpr std::int64_t kMaxPassesOfPath = 1'000'000;

struct SimulateOptions {
  std::string plan_path;
  std::string trace_path;
  std::string trace_detail = "auto";
  std::string report_path;
  OutputOptions output;
};

using Peaks = std::vector<plan::MemoryPeak>;

// The device whose card is fullest.
std::string replay_text(const Peaks& peaks) {
  const auto fullest = std::max_element(
      peaks.begin(), peaks.end(),
      [](const plan::MemoryPeak& a, const plan::MemoryPeak& b) { return a.device() < b.device(); });
  const auto text = [](ByteCount bytes) { return format_bytes(bytes.bytes()); };
  return fmt::format(
      "\nreplayed through PyTorch's caching allocator, device {}: {} allocated, {} reserved, {} of "
      "the card\n",
      fullest - peaks.begin(), text(fullest->allocated), text(fullest->reserved),
      text(fullest->device()));
}

Json replay_json(const Peaks& peaks) {
  Json devices = Json::array();
  for (const plan::MemoryPeak& peak : peaks) {
    devices.push(Json::Object{{"allocated_bytes", peak.allocated.value()},
                              {"reserved_bytes", peak.reserved.value()},
                              {"device_bytes", peak.device().value()}});
  }
  return devices;
}

// Plans whose passes are not those of one pipeline on one kind of node.
void refuse_trace(const SimulateOptions& options, std::string_view plans) {
  if (!options.trace_path.empty()) {
    bad_input("--trace", fmt::format("{} have no trace of passes", plans), "use --report");
  }
}

int simulate_training(const plan::Plan& plan, const std::string& where,
                      const SimulateOptions& options, TraceDetail detail) {
  if (!options.trace_path.empty()) {
    check_plan_trace(plan, detail);  // before anything is printed
  }
  plan::Simulation simulation = in_file(where, [&] {
    return plan::simulate(plan, {.record_spans = count_passes(plan) <= kMaxPassesOfPath,
                                 .interval_draws = plan::kIntervalDraws,
                                 .jobs = 0});
  });
  const Peaks peaks = plan::replay_memory(plan, {}, 0);
  add_replayed_verdict(plan, peaks, simulation);
  const std::string text =
      explanation(plan, simulation) + (peaks.empty() ? "" : replay_text(peaks));
  Json suggestions = note_suggestions(plan, simulation, options.output);
  if (options.output.json) {
    Json::Object result = simulation_json(plan, simulation);
    result.emplace(result.end() - 1, "replayed_memory", replay_json(peaks));  // `plan` is last
    result.emplace(result.end() - 1, "without_effect", idle_json(plan));
    result.emplace(result.end() - 1, "suggestions", std::move(suggestions));
    print_json(result);
  } else {
    print(text);
  }
  if (!options.report_path.empty()) {
    write_result(options.report_path, text, options.output);
  }
  if (!options.trace_path.empty()) {
    write_plan_trace(options.trace_path, plan, detail, options.output);
  }
  if (simulation.does_not_fit) {
    note(fmt::format("orrery: this plan does not fit: {}", *simulation.does_not_fit));
    return kInfeasible;
  }
  return kOk;
}

int run_simulate(const SimulateOptions& options) {
  const TraceDetail detail = parse_trace_detail(options.trace_detail);
  refuse_alone({{"--trace-detail", options.trace_detail != SimulateOptions().trace_detail}},
               {"--trace", !options.trace_path.empty()});
  check_outputs({{"--trace", options.trace_path},
                 {"--report", options.report_path},
                 json_path(options.output)},
                {options.plan_path});
  const PlanDocument document = load_plan_document(options.plan_path);
  if (plan::is_mixed_plan(document.json)) {
    refuse_trace(options, "plans of mixed clusters");
    return simulate_mixed(plan::read_mixed_plan(document.json, document.where), document.where,
                          options.report_path, options.output);
  }
  if (plan::is_recommender(document.json)) {
    refuse_trace(options, "plans of recommendation networks");
    return simulate_recommender(document.json, document.where, options.report_path, options.output);
  }
  const plan::Plan plan = plan::read_plan(document.json, document.where);
  note_idle_fields(plan, options.output);
  if (plan.serving) {
    if (options.trace_detail != SimulateOptions().trace_detail) {
      bad_input("--trace-detail", "the trace of a serving plan shows its requests");
    }
    return simulate_serving_plan(plan, document.where, options.report_path, options.trace_path,
                                 options.output);
  }
  return simulate_training(plan, document.where, options, detail);
}

}  // namespace

void add_simulate(const Command& app, Action& chosen) {
  auto options = std::make_shared<SimulateOptions>();
  const Command command = app.add_subcommand("simulate", "explain one plan: time, memory, why");
  command.footer(kSimulateExamples);
  command.add_option("PLAN", options->plan_path, "plan document, - for standard input").required();
  command.add_option("--trace", options->trace_path, "write a Chrome trace (Perfetto opens it)");
  command.add_option("--trace-detail", options->trace_detail,
                     "passes, kernels or auto: kernels of short iterations (auto)");
  command.add_option("--report", options->report_path, "write the explanation as text");
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run_simulate(*options); }; });
}

}  // namespace orrery::cli
