// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/command.hpp"
#include "cli/common.hpp"
#include "sim/schedule_picture.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kExamples = R"(
Costs are seconds per device share and micro-batch: a chunk takes 1/chunks of them. A schedule that
does not split the backward runs input-grad and weight-grad as one pass.

Examples:
  orrery schedule 1f1b --stages 4 --microbatches 8
  orrery schedule interleaved --stages 8 --microbatches 16 --chunks 2 --forward 1 --input-grad 1
  orrery schedule gpipe --stages 4 --microbatches 8 --latency 0.5 --json)";

constexpr std::int64_t kMaxPassesOfPicture = 200'000;

struct ScheduleOptions {
  std::string name;
  std::string stages;
  std::string micro_batches;
  std::string chunks = "1";
  std::string forward = "1";
  std::string input_grad = "1";
  std::string weight_grad = "1";
  std::string latency = "0";
  std::string width = "120";
  OutputOptions output;
};

int integer_option(const std::string& text, const char* name, std::int64_t max) {
  return static_cast<int>(parse_integer(text, name, 1, max));
}

// Largest cost: far below the range of simulated time for any number of passes.
SimTime cost_option(const std::string& text, const char* name) {
  return to_sim_time(Seconds(parse_number(text, name, 0.0, 1e5)));
}

// Costs of chunks as given, that is `chunks` times too long, so that no division rounds; results
// are divided instead.
sim::PipelineCosts unit_costs(const ScheduleOptions& options, const sim::PipelineOrder& order,
                              bool splits_backward) {
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  const SimTime input_grad = cost_option(options.input_grad, "--input-grad");
  const SimTime weight_grad = cost_option(options.weight_grad, "--weight-grad");
  const SimTime latency = cost_option(options.latency, "--latency") *
                          parse_integer(options.chunks, "--chunks", 1, limits::kMaxLayers);
  sim::PipelineCosts costs;
  costs.forward.assign(stages, cost_option(options.forward, "--forward"));
  if (splits_backward) {
    costs.input_grad.assign(stages, input_grad);
    costs.weight_grad.assign(stages, weight_grad);
  } else {
    costs.backward.assign(stages, input_grad + weight_grad);
  }
  for (std::size_t stage = 0; stage + 1 < stages; ++stage) {
    const bool same = order.device_of[stage] == order.device_of[stage + 1];
    costs.send_forward.push_back(same ? SimTime() : latency);
  }
  costs.send_backward = costs.send_forward;
  return costs;
}

struct Measures {
  double makespan = 0;
  double bubble_fraction = 0;
  std::vector<double> idle;
  std::vector<double> peak_activations;
};

Measures measure(const sim::PipelineResult& result, int chunks) {
  Measures measures;
  measures.makespan = to_seconds(result.makespan).value() / chunks;
  SimTime largest_idle;
  for (const sim::DeviceUse& use : result.devices) {
    const SimTime span = use.last_end - use.first_start;
    const SimTime idle = span - use.busy;
    measures.idle.push_back(to_seconds(idle).value() / chunks);
    measures.peak_activations.push_back(static_cast<double>(use.peak_chunks) / chunks);
    if (idle > largest_idle) {
      largest_idle = idle;
      measures.bubble_fraction = static_cast<double>(idle.ps) / static_cast<double>(span.ps);
    }
  }
  return measures;
}

Json to_json(const Measures& measures) {
  Json idle = Json::array();
  Json peaks = Json::array();
  for (std::size_t stage = 0; stage < measures.idle.size(); ++stage) {
    idle.push(measures.idle[stage]);
    peaks.push(measures.peak_activations[stage]);
  }
  return Json::Object{{"makespan", measures.makespan},
                      {"bubble_fraction", measures.bubble_fraction},
                      {"idle", std::move(idle)},
                      {"peak_activations", std::move(peaks)}};
}

std::string to_text(const Measures& measures) {
  TextTable table({{"stage"}, {"idle", Align::Right}, {"peak activations", Align::Right}});
  for (std::size_t stage = 0; stage < measures.idle.size(); ++stage) {
    table.add_row({fmt::format("{}", stage), fmt::format("{:.6g}", measures.idle[stage]),
                   fmt::format("{:.6g}", measures.peak_activations[stage])});
  }
  return fmt::format("makespan {:.6g}, bubble {}\n\n", measures.makespan,
                     percent(measures.bubble_fraction, 2)) +
         table.text();
}

int run_schedule(const ScheduleOptions& options) {
  const sim::Schedule& schedule = sim::find_schedule(options.name, "schedule");
  sim::ScheduleParams params;
  params.stages = integer_option(options.stages, "--stages", limits::kMaxLayers);
  params.micro_batches = integer_option(options.micro_batches, "--microbatches", limits::kMaxBatch);
  params.chunks = integer_option(options.chunks, "--chunks", limits::kMaxLayers);
  const std::string broken = schedule.check(params);
  if (!broken.empty()) {
    bad_input(fmt::format("schedule {}", schedule.name), broken);
  }
  const int width = integer_option(options.width, "--width", 10'000);
  const sim::PipelineOrder order = schedule.order(params);
  const sim::PipelineCosts costs = unit_costs(options, order, schedule.splits_backward);
  const std::int64_t passes = std::int64_t{2} * order.num_virtual_stages * params.micro_batches;
  const bool draws = !options.output.json && passes <= kMaxPassesOfPicture;
  const sim::PipelineResult result =
      sim::evaluate_pipeline(order, costs, {.steady_state = !draws, .record_spans = draws});
  const Measures measures = measure(result, params.chunks);
  if (options.output.json) {
    print_json(to_json(measures));
    return kOk;
  }
  std::string text;
  if (draws) {
    sim::PictureOptions picture{.width = width, .color = wants_color(options.output)};
    picture.time_divisor = params.chunks;
    text = sim::schedule_picture(result, picture) + "\n";
  }
  print(text + to_text(measures));
  return kOk;
}

}  // namespace

void add_schedule(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = app.add_subcommand(
      "schedule", "run a pipeline schedule on unit costs: picture, bubble, memory");
  command->footer(kExamples);
  command->add_option("NAME", options->name, "a name of `orrery list schedules`")->required();
  command->add_option("--stages", options->stages, "pipeline devices")->required();
  command->add_option("--microbatches", options->micro_batches, "micro-batches per iteration")
      ->required();
  command->add_option("--chunks", options->chunks, "model chunks per device (1)");
  command->add_option("--forward", options->forward, "seconds of a forward (1)");
  command->add_option("--input-grad", options->input_grad, "seconds of an input gradient (1)");
  command->add_option("--weight-grad", options->weight_grad, "seconds of a weight gradient (1)");
  command->add_option("--latency", options->latency, "seconds of a transfer between devices (0)");
  command->add_option("--width", options->width, "columns of the picture (120)");
  add_output_options(*command, options->output);
  command->callback([options, &chosen] { chosen = [options] { return run_schedule(*options); }; });
}

}  // namespace orrery::cli
