// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/text.hpp"
#include "cli/show/list_names.hpp"
#include "cli/show/show.hpp"
#include "costmodel/profile.hpp"
#include "sim/pipeline/schedule_picture.hpp"

namespace orrery::cli {
namespace {

// The GPU a profile is for; the defaults of an architecture show with any GPU of it.
topologies::Gpu gpu_of_profile(const std::string& name) {
  const std::vector<std::string> gpus = topologies::gpu_names();
  if (std::find(gpus.begin(), gpus.end(), name) != gpus.end()) {
    return topologies::load_gpu(name);
  }
  constexpr std::string_view kDefault = "default-";
  for (const std::string& gpu_name : gpus) {
    const topologies::Gpu gpu = topologies::load_gpu(gpu_name);
    if (name == std::string(kDefault) + gpu.architecture || name.starts_with(gpu_name)) {
      return gpu;
    }
  }
  return topologies::load_gpu(gpus.front());
}

using Lines = std::vector<std::pair<std::string, std::string>>;  // what, and its value

// Members of a document, one line each, nested names joined by dots.
void append_lines(const Json& value, const std::string& path, Lines& lines) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.as_object()) {
      append_lines(member, path.empty() ? key : path + "." + key, lines);
    }
    return;
  }
  lines.emplace_back(path, value.is_string() ? printable(value.as_string(), 400) : value.dump(-1));
}

std::string text_of(const Lines& lines) {
  std::size_t width = 0;
  for (const auto& [what, value] : lines) {
    width = std::max(width, what.size());
  }
  std::string text;
  for (const auto& [what, value] : lines) {
    text += fmt::format("{:<{}}  {}\n", what, width, value);
  }
  return text;
}

sim::PipelineCosts unit_costs(const sim::PipelineOrder& order, bool splits_backward) {
  const SimTime one = to_sim_time(Seconds(1.0));
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  sim::PipelineCosts costs;
  costs.forward.assign(stages, one);
  costs.input_grad.assign(splits_backward ? stages : 0, one);
  costs.weight_grad.assign(splits_backward ? stages : 0, one);
  costs.backward.assign(splits_backward ? 0 : stages, one * 2);
  costs.send_forward.assign(stages - 1, SimTime());
  costs.send_backward = costs.send_forward;
  return costs;
}

}  // namespace

Shown show_profile(const ShowRequest& request) {
  const std::vector<std::string> names = costmodel::profile_names();
  const bool is_file =
      request.name.ends_with(".json") || request.name.find('/') != std::string::npos;
  const bool is_known = std::find(names.begin(), names.end(), request.name) != names.end();
  const std::vector<std::string> gpus = topologies::gpu_names();
  const bool is_gpu = std::find(gpus.begin(), gpus.end(), request.name) != gpus.end();
  if (!is_file && !is_known && !is_gpu) {
    bad_input("show", fmt::format("unknown profile \"{}\"", printable(request.name)),
              nearest_hint(request.name, names));
  }
  const topologies::Gpu gpu = gpu_of_profile(request.name);
  const std::string text = is_known || is_file ? request.name : std::string();
  const costmodel::Profile profile = costmodel::load_profile(text, gpu);
  Shown shown;
  shown.json = costmodel::to_json(profile);
  Lines lines;
  append_lines(shown.json, "", lines);
  shown.text = text_of(lines);
  return shown;
}

Shown show_schedule(const ShowRequest& request) {
  const sim::Schedule& schedule = sim::find_schedule(request.name, "schedule");
  sim::ScheduleParams params{4, 8, schedule.traits.uses_chunks ? 2 : 1, 0};
  const auto yes = [](bool value) { return value ? "yes" : "no"; };
  Shown shown;
  shown.text = fmt::format(
      "{}: {}\nconstraints: {}\nsource: {}\n"
      "splits the backward: {}; synchronous: {}; model chunks: {}\n",
      schedule.name, schedule.description, schedule.constraints, schedule.source,
      yes(schedule.traits.splits_backward), yes(schedule.traits.synchronous),
      yes(schedule.traits.uses_chunks));
  if (schedule.check(params).empty()) {
    const sim::PipelineOrder order = schedule.order(params);
    const sim::PipelineResult result =
        sim::evaluate_pipeline(order, unit_costs(order, schedule.traits.splits_backward),
                               {.steady_state = false, .record_spans = true});
    shown.text += fmt::format(
        "\n{} stages, {} micro-batches, {} per device:\n{}", params.stages, params.micro_batches,
        params.chunks == 1 ? "1 chunk" : fmt::format("{} chunks", params.chunks),
        sim::schedule_picture(result, {.width = 120,
                                       .color = request.color,
                                       .order = &order,
                                       .lists = list_names(request.name, order)}));
  }
  shown.json = Json::Object{{"name", schedule.name},
                            {"description", schedule.description},
                            {"constraints", schedule.constraints},
                            {"source", schedule.source},
                            {"splits_backward", schedule.traits.splits_backward},
                            {"synchronous", schedule.traits.synchronous},
                            {"uses_chunks", schedule.traits.uses_chunks}};
  return shown;
}

}  // namespace orrery::cli
