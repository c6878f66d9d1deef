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
#include "sim/share_costs.hpp"

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
  std::string warm_up = "0";
  std::string slices = "1";
  std::string replicas = "1";
  std::string iterations = "0";
  std::string cap = "0";
  OutputOptions output;
};

int integer_option(const std::string& text, const char* name, std::int64_t max) {
  return static_cast<int>(parse_integer(text, name, 1, max));
}

// Largest cost: far below the range of simulated time for any number of passes.
SimTime cost_option(const std::string& text, const char* name) {
  return to_sim_time(Seconds(parse_number(text, name, 0.0, 1e5)));
}

sim::PassTimes share_of(const ScheduleOptions& options) {
  return {.forward = cost_option(options.forward, "--forward"),
          .input_grad = cost_option(options.input_grad, "--input-grad"),
          .weight_grad = cost_option(options.weight_grad, "--weight-grad"),
          .send = cost_option(options.latency, "--latency")};
}

struct Measures {
  double makespan = 0;
  double bubble_fraction = 0;
  std::vector<double> idle;
  std::vector<double> peak_activations;
};

Measures measure(const sim::PipelineResult& result, std::int64_t scale, int pieces) {
  Measures measures;
  const auto seconds = [&](SimTime time) {
    return to_seconds(time).value() / static_cast<double>(scale);
  };
  measures.makespan = seconds(result.makespan);
  measures.bubble_fraction = sim::bubble_fraction(result);
  for (const sim::DeviceUse& use : result.devices) {
    measures.idle.push_back(seconds(sim::idle_of(use)));
    measures.peak_activations.push_back(static_cast<double>(use.peak_chunks) / pieces);
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
  params.warm_up = static_cast<int>(parse_integer(options.warm_up, "--warm-up", 0, 64));
  params.slices = integer_option(options.slices, "--slices", limits::kMaxBatch);
  params.replicas = integer_option(options.replicas, "--replicas", limits::kMaxLayers);
  params.iterations =
      static_cast<int>(parse_integer(options.iterations, "--iterations", 0, limits::kMaxBatch));
  params.cap = parse_number(options.cap, "--cap", 0.0, 1e9);
  const sim::PassTimes share = share_of(options);
  params.times = {share};
  const std::string broken = schedule.check(params);
  if (!broken.empty()) {
    bad_input(fmt::format("schedule {}", schedule.name), broken);
  }
  const int width = integer_option(options.width, "--width", 10'000);
  const sim::PipelineOrder order = schedule.order(params);
  const auto [costs, scale] = sim::share_costs(order, share);
  const std::int64_t passes = std::int64_t{2} * order.num_virtual_stages * order.micro_batches;
  const bool draws = !options.output.json && passes <= kMaxPassesOfPicture;
  const sim::PipelineResult result =
      sim::evaluate_pipeline(order, costs, {.steady_state = !draws, .record_spans = draws});
  const Measures measures = measure(result, scale, sim::pieces_of(order));
  if (options.output.json) {
    print_json(to_json(measures));
    return kOk;
  }
  std::string text;
  if (draws) {
    sim::PictureOptions picture{.width = width, .color = wants_color(options.output)};
    picture.time_divisor = static_cast<double>(scale);
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
  command->add_option("--warm-up", options->warm_up, "variant of the warm-up (0: its own rule)");
  command->add_option("--slices", options->slices, "sequence slices per micro-batch (1)");
  command->add_option("--replicas", options->replicas, "pipelines side by side (1)");
  command->add_option("--iterations", options->iterations, "of asynchronous schedules");
  command->add_option("--cap", options->cap, "micro-batches of activations a device may hold");
  command->add_option("--width", options->width, "columns of the picture (120)");
  add_output_options(*command, options->output);
  command->callback([options, &chosen] { chosen = [options] { return run_schedule(*options); }; });
}

}  // namespace orrery::cli
