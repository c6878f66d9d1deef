// SPDX-License-Identifier: Apache-2.0
#include "cli/schedule_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/together.hpp"
#include "cli/schedule_sizes.hpp"
#include "plan/schedule_traits.hpp"
#include "sim/schedule.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kScheduleOptionsExamples = R"(
Costs are seconds per device share and micro-batch: a chunk takes 1/chunks of them. A schedule that
does not split the backward runs input-grad and weight-grad as one pass. --plan takes durations,
transfers and bytes from the cost model; --costs takes them from a table.

Examples:
  orrery schedule 1f1b --stages 4 --microbatches 8
  orrery schedule interleaved --stages 8 --microbatches 16 --chunks 2 --forward 1 --input-grad 1
  orrery schedule gpipe --stages 4 --microbatches 8 --latency 0.5 --json
  orrery schedule zb-h1 --stages 4 --microbatches 8 --svg zb-h1.svg
  orrery schedule mine.json --stages 4 --microbatches 8 --svg mine.svg
  orrery schedule pipedream --stages 2 --microbatches 15 --replicas 15:1
  orrery schedule --compare 1f1b zb-h1 chimera pipedream --stages 4 --microbatches 8
  orrery schedule zb-v --plan plan.json --svg zb-v.svg
  orrery schedule --compare 1f1b zb-h1 zb-v --plan plan.json
  orrery schedule 1f1b --stages 4 --microbatches 8 --costs times.csv)";

using Stated = std::pair<std::string ScheduleOptions::*, const char*>;

// Options whose values a plan or a table of costs states already.
void refuse_stated(const ScheduleOptions& options, std::span<const Stated> stated,
                   std::string_view by) {
  for (const auto& [member, name] : stated) {
    if (!(options.*member).empty()) {
      bad_input(name, fmt::format("{} says this already", by), "leave it out");
    }
  }
}

constexpr std::array<Stated, 5> kCosts = {{{&ScheduleOptions::forward, "--forward"},
                                           {&ScheduleOptions::input_grad, "--input-grad"},
                                           {&ScheduleOptions::weight_grad, "--weight-grad"},
                                           {&ScheduleOptions::latency, "--latency"},
                                           {&ScheduleOptions::prediction, "--prediction"}}};
constexpr std::array<Stated, 7> kSizes = {{{&ScheduleOptions::stages, "--stages"},
                                           {&ScheduleOptions::micro_batches, "--microbatches"},
                                           {&ScheduleOptions::costs, "--costs"},
                                           {&ScheduleOptions::warm_up, "--warm-up"},
                                           {&ScheduleOptions::replicas, "--replicas"},
                                           {&ScheduleOptions::iterations, "--iterations"},
                                           {&ScheduleOptions::rollbacks, "--rollbacks"}}};

// In a comparison chunks and slices are of the schedules named that have some, one at least.
void check_pieces(const ScheduleOptions& options) {
  const auto check = [&](const std::string& value, const char* option, std::int64_t most,
                         bool sim::ScheduleTraits::*uses, bool of_documents) {
    if (value.empty() || options.compared.empty()) {
      return;
    }
    (void)integer_option(value, option, most);
    const bool used =
        std::any_of(options.compared.begin(), options.compared.end(), [&](const std::string& name) {
          return is_document(name) || may_be_of_plan(name, options)
                     ? of_documents
                     : sim::find_schedule(name, "schedule").traits.*uses;
        });
    if (!used) {
      bad_input(option, fmt::format("no schedule named here has {}", option + 2),
                fmt::format("leave it out, or name {}", plan::schedules_with(uses)));
    }
  };
  check(options.chunks, "--chunks", limits::kMaxLayers, &sim::ScheduleTraits::uses_chunks, true);
  check(options.slices, "--slices", limits::kMaxBatch, &sim::ScheduleTraits::uses_slices, true);
}

// So is a cap of those whose activations are not fixed.
void check_compared_cap(const ScheduleOptions& options) {
  if (options.cap.empty() || options.compared.empty()) {
    return;
  }
  (void)cap_of(options);
  const bool used =
      std::any_of(options.compared.begin(), options.compared.end(), [&](const std::string& name) {
        return may_be_of_plan(name, options) || !fixes_activations(name);
      });
  if (!used) {
    bad_input(kCapOption, "the activations of all schedules named here are fixed",
              "leave it out, or name \"v-cap\" or \"flexpipe\"");
  }
}

// A prediction is of the schedules named, one at least.
void check_prediction(const ScheduleOptions& options) {
  std::vector<std::string> names = options.compared;
  if (!options.name.empty()) {
    names.push_back(options.name);
  }
  const bool predicts = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return !is_document(name) && !may_be_of_plan(name, options) &&
           sim::find_schedule(name, "schedule").traits.predicts_weights;
  });
  if (!predicts && !options.prediction.empty()) {
    bad_input("--prediction", "no schedule named here predicts weights",
              fmt::format("leave it out, or name {}",
                          plan::schedules_with(&sim::ScheduleTraits::predicts_weights)));
  }
}

}  // namespace

int integer_option(const std::string& text, const char* name, std::int64_t max) {
  return static_cast<int>(parse_integer(text, name, 1, max));
}

double cap_of(const ScheduleOptions& options) {
  return options.cap.empty() ? 0.0 : parse_number(options.cap, kCapOption, 1.0, 1e9);
}

bool is_document(const std::string& name) { return name.ends_with(".json"); }

bool may_be_of_plan(const std::string& name, const ScheduleOptions& options) {
  return !options.plan_path.empty() && !is_document(name) && !sim::is_registered_schedule(name);
}

void check_schedule_options(const ScheduleOptions& options) {
  // A comparison is a table of the schedules that it names.
  refuse_together({"--compare", !options.compared.empty()},
                  {{"the NAME of a single schedule", !options.name.empty()}});
  if (!options.plan_path.empty()) {
    refuse_stated(options, kSizes, "the plan of --plan");
    refuse_stated(options, kCosts, "the plan of --plan");
  } else if (!options.costs.empty()) {
    refuse_stated(options, kCosts, "the table of --costs");
  }
  check_prediction(options);
  check_pieces(options);
  check_compared_cap(options);
}

void add_schedule_options(const Command& command, ScheduleOptions& options) {
  command.footer(kScheduleOptionsExamples);
  command.add_option("NAME", options.name,
                     "a name of `orrery list schedules`, or a schedule document FILE.json");
  command.add_option("--compare", options.compared, "several schedules side by side");
  command.add_option("--plan", options.plan_path,
                     "run it on this plan: real durations, transfers and memory");
  command.add_option("--costs", options.costs, "pass times per stage and micro-batch: JSON or CSV");
  command.add_option("--stages", options.stages, "pipeline devices");
  command.add_option("--microbatches", options.micro_batches, "micro-batches per iteration");
  command.add_option(
      "--chunks", options.chunks,
      "model chunks per device (the fewest that make it a schedule of its own; with --compare "
      "for those that have chunks)");
  command.add_option("--forward", options.forward,
                     "seconds of a forward, or with a unit: \"12 ms\" (1)");
  command.add_option("--input-grad", options.input_grad, "seconds of an input gradient (1)");
  command.add_option("--weight-grad", options.weight_grad, "seconds of a weight gradient (1)");
  command.add_option("--latency", options.latency, "seconds of a transfer between devices (0)");
  command.add_option("--prediction", options.prediction,
                     "seconds of a prediction of the weights, where a schedule predicts them (0)");
  command.add_option("--warm-up", options.warm_up, "variant of the warm-up (0: its own rule)");
  command.add_option("--slices", options.slices,
                     "sequence slices per micro-batch (1, or one a stage where whole sequences do "
                     "not run; on plans the plan's; with --compare for those that have slices)");
  command.add_option("--replicas", options.replicas,
                     "pipelines side by side, or devices of each stage: 15:1 (1)");
  command.add_option("--iterations", options.iterations,
                     "of asynchronous and zero-bubble schedules, one after the other");
  command.add_option("--rollbacks", options.rollbacks,
                     "of zero-bubble iterations, those whose update is taken back and made again");
  command.add_option(
      kCapOption, options.cap,
      "micro-batches of activations a device may hold, at least 1, activation_cap of a plan (the "
      "schedule's own; with --compare for those whose activations are not fixed)");
  command.add_option("--svg", options.svg, "write the picture to this SVG file");
  command.add_option("--trace", options.trace, "write a Chrome trace to this file");
  command.add_option(
      "--width", options.width,
      "columns of time in the picture (what the terminal has for them, 120 without one)");
  add_output_options(command, options.output);
}

}  // namespace orrery::cli
