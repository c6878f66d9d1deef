// SPDX-License-Identifier: Apache-2.0
#include "cli/schedule_sizes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "cli/command/command_line.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "studies/plan_schedules.hpp"

namespace orrery::cli {
namespace {

constexpr double kNoBound = 1e9;  // a cap, in micro-batches, that no schedule needs more than

// Seconds, of which `usual` where none are given. Largest cost: 1,000 s, so that also many times
// multiplied it stays in the range of times.
SimTime cost_option(const std::string& text, const char* name, double usual) {
  return to_sim_time(text.empty() ? Seconds(usual) : parse_time(text, name, 1e3));
}

int count_option(const std::string& text, const char* name, std::int64_t max) {
  return text.empty() ? 0 : static_cast<int>(parse_integer(text, name, 0, max));
}

// "4", or by stage "15:1".
void set_replicas(const ScheduleOptions& options, sim::ScheduleParams& params) {
  if (options.replicas.empty()) {
    return;
  }
  if (options.replicas.find(':') == std::string::npos) {
    params.replicas = integer_option(options.replicas, "--replicas", limits::kMaxLayers);
    return;
  }
  for (const std::string_view count : split(options.replicas, ':')) {
    params.replicas_of.push_back(
        integer_option(std::string(count), "--replicas", limits::kMaxLayers));
  }
}

}  // namespace

sim::PassTimes share_of(const ScheduleOptions& options) {
  return {.forward = cost_option(options.forward, "--forward", 1),
          .input_grad = cost_option(options.input_grad, "--input-grad", 1),
          .weight_grad = cost_option(options.weight_grad, "--weight-grad", 1),
          .send = cost_option(options.latency, "--latency", 0),
          .prediction = cost_option(options.prediction, "--prediction", 0)};
}

sim::ScheduleParams params_of(const ScheduleOptions& options) {
  sim::ScheduleParams params;
  params.stages = integer_option(options.stages, "--stages", limits::kMaxLayers);
  params.micro_batches = integer_option(options.micro_batches, "--microbatches", limits::kMaxBatch);
  params.chunks =
      options.chunks.empty() ? 1 : integer_option(options.chunks, "--chunks", limits::kMaxLayers);
  params.warm_up = count_option(options.warm_up, "--warm-up", 64);
  params.slices =
      options.slices.empty() ? 1 : integer_option(options.slices, "--slices", limits::kMaxBatch);
  set_replicas(options, params);
  params.iterations = count_option(options.iterations, "--iterations", limits::kMaxBatch);
  params.rollbacks = count_option(options.rollbacks, "--rollbacks", limits::kMaxBatch);
  params.cap = cap_of(options);
  params.cap_name = kCapOption;
  params.times = {share_of(options)};
  sim::in_lowest_terms(params.times);
  return params;
}

sim::ScheduleDocument read_document(const std::string& name) {
  return sim::read_schedule_document(read_json_file(name), name);
}

ScheduleOptions with_listed_sizes(ScheduleOptions options) {
  std::vector<std::string> names = options.compared;
  names.push_back(options.name);
  for (const std::string& name : names) {
    const bool complete = !options.stages.empty() && !options.micro_batches.empty();
    if (complete || !is_document(name)) {
      continue;
    }
    if (const auto listed = sim::listed_sizes(read_document(name))) {
      const auto fill = [](std::string& option, int number) {
        option = option.empty() && number > 0 ? fmt::format("{}", number) : option;
      };
      fill(options.stages, listed->stages);
      fill(options.micro_batches, listed->micro_batches);
    }
  }
  return options;
}

namespace {

// Where something else is wrong with `given`: pieces with which a schedule takes few passes, with
// the slices and the warm-up that are given if it takes them.
std::optional<sim::ScheduleParams> pieces_of_few_passes(const sim::Schedule& schedule,
                                                        const sim::ScheduleParams& given) {
  sim::ScheduleParams few{4, 8, 1, 0};
  for (const int warm_up : {given.warm_up, 0}) {
    few.warm_up = warm_up;
    for (const int slices : {given.slices, 1, few.stages}) {
      few.slices = slices;
      for (const int chunks : {1, 2, 3, 4}) {
        few.chunks = chunks;
        if (schedule.check(few).empty()) {
          return few;
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

ScheduleOptions fewest_pieces(const std::string& name, ScheduleOptions options) {
  if (is_document(name)) {
    const sim::ScheduleDocument document = read_document(name);
    const auto listed = sim::listed_sizes(document);
    if (options.chunks.empty()) {
      options.chunks = fmt::format("{}", sim::fewest_chunks(document));
    }
    if (options.slices.empty() && listed) {
      options.slices = fmt::format("{}", listed->slices);
    }
    return options;
  }
  const sim::Schedule& schedule = sim::find_schedule(name, "schedule");
  sim::ScheduleParams params = params_of(options);
  const bool slices_given = !options.slices.empty();
  const std::vector<int> slices = {params.slices, params.stages};
  std::vector<int> counts = {1, 2, 3, 4};  // of chunks
  if (params.stages > 1 && studies::needs_chunks(schedule)) {
    std::rotate(counts.begin(), counts.begin() + 1, counts.end());
  }
  for (std::size_t k = 0; k < (schedule.traits.uses_slices && !slices_given ? 2 : 1); ++k) {
    params.slices = slices[k];
    for (const int chunks : counts) {
      params.chunks = options.chunks.empty() ? chunks : params.chunks;
      if (schedule.check(params).empty()) {
        options.chunks = fmt::format("{}", params.chunks);
        options.slices = fmt::format("{}", params.slices);
        return options;
      }
    }
  }
  params.slices = slices.front();
  if (const auto few = pieces_of_few_passes(schedule, params)) {
    options.chunks = options.chunks.empty() ? fmt::format("{}", few->chunks) : options.chunks;
    options.slices =
        slices_given ? options.slices : fmt::format("{}", few->slices == 1 ? 1 : params.stages);
  }
  return options;
}

bool fixes_activations(const std::string& name) {
  if (is_document(name)) {
    const sim::ScheduleDocument document = read_document(name);
    return document.lists || document.rule->warm_up;
  }
  const sim::Schedule& schedule = sim::find_schedule(name, "schedule");
  for (const int slices : {1, 4}) {
    for (const int chunks : {1, 2, 3, 4}) {
      sim::ScheduleParams params{4, 8, chunks, 0};
      params.slices = slices;
      const bool runs = schedule.check(params).empty();
      params.cap = kNoBound;
      if (runs) {
        return !schedule.check(params).empty();
      }
    }
  }
  return false;  // what it asks for shows when it is run
}

ScheduleOptions compared_options(const std::string& name, ScheduleOptions options) {
  if (may_be_of_plan(name, options)) {
    options.slices.clear();
    return options;
  }
  if (fixes_activations(name)) {
    options.cap.clear();
  }
  const bool document = is_document(name);
  if (document ? !sim::traits_of(read_document(name)).uses_slices
               : !sim::find_schedule(name, "schedule").traits.uses_slices) {
    options.slices.clear();
  }
  // Lists of one chunk a device have no use for more, as a schedule without chunks.
  const auto listed = document ? sim::listed_sizes(read_document(name)) : std::nullopt;
  if (document ? listed && listed->chunks == 1
               : !sim::find_schedule(name, "schedule").traits.uses_chunks) {
    options.chunks.clear();
  }
  return options;
}

std::string cap_note(const std::vector<std::string>& unbounded) {
  return unbounded.empty() ? ""
                           : fmt::format("--cap does not bound {}: their activations are fixed\n",
                                         fmt::join(unbounded, ", "));
}

std::string pieces_of(const ScheduleOptions& options) {
  std::string pieces;
  for (const auto& [count, what] :
       {std::pair(options.chunks, "chunks"), std::pair(options.slices, "slices")}) {
    if (!count.empty() && count != "1") {
      pieces += fmt::format(", {} {}", count, what);
    }
  }
  return pieces;
}

std::string sizes_text(const ScheduleOptions& options) {
  return fmt::format("{} stage{}, {} micro-batch{}", options.stages,
                     options.stages == "1" ? "" : "s", options.micro_batches,
                     options.micro_batches == "1" ? "" : "es");
}

}  // namespace orrery::cli
