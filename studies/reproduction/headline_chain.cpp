// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "search/problems/dealt_pipeline.hpp"
#include "sim/schedule_changes.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

namespace {

using search::ChainStage;

constexpr int kMaxLayers = 2048;
constexpr int kMaxDevices = 1024;

std::vector<ChainStage> read_cut(ObjectReader& run, int layers) {
  const JsonReader list = run.required("stages");
  std::vector<ChainStage> stages;
  for (const JsonReader& entry : list.array(kMaxDevices)) {
    ObjectReader reader = entry.object();
    const int first = stages.empty() ? 0 : stages.back().last;
    ChainStage stage;
    stage.first = static_cast<int>(reader.required("first").integer(first, first));
    stage.last = static_cast<int>(reader.required("last").integer(first + 1, layers));
    stage.replicas = static_cast<int>(reader.integer_or("replicas", 1, 1, kMaxDevices));
    reader.ignore_rest();  // planners say more about a stage
    stages.push_back(stage);
  }
  if (stages.empty() || stages.back().last != layers) {
    list.fail(fmt::format("the stages must cover all {} layers", layers));
  }
  return stages;
}

// One bandwidth for all links, or a matrix by device and the order of the devices.
search::ChainLinks read_links(ObjectReader& run, int devices) {
  const JsonReader bandwidth = run.required("bandwidth");
  if (!bandwidth.json().is_array()) {
    return search::ChainLinks(bandwidth.bandwidth().value());
  }
  std::vector<std::vector<double>> matrix;
  for (const JsonReader& row : bandwidth.array(kMaxDevices)) {
    matrix.emplace_back();
    for (const JsonReader& entry : row.array(kMaxDevices)) {
      matrix.back().push_back(entry.bandwidth(true).value());
    }
  }
  const std::size_t n = matrix.size();
  if (static_cast<int>(n) < devices ||
      std::any_of(matrix.begin(), matrix.end(), [n](const auto& row) { return row.size() != n; })) {
    bandwidth.fail(fmt::format("expected a square matrix for {} devices", devices));
  }
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  if (const auto given = run.optional("device_order")) {
    const std::vector<JsonReader> entries = given->array(kMaxDevices);
    if (entries.size() != n) {
      given->fail("expected one entry a device");
    }
    std::transform(entries.begin(), entries.end(), order.begin(), [n](const JsonReader& entry) {
      return static_cast<int>(entry.integer(0, static_cast<std::int64_t>(n) - 1));
    });
  }
  return {std::move(matrix), std::move(order)};
}

// Replicas take whole micro-batches in turn: as many as it takes to become steady.
Json dealt_run(const JsonReader& value, const search::ChainPipeline& pipeline,
               const search::ChainLinks& links, int devices) {
  std::string refused;
  const auto times = search::run_dealt(pipeline, search::delays_over(pipeline, links), &refused);
  if (!times) {
    value.fail(refused);
  }
  Json held = Json::array();
  for (const int count : times->micro_batches) {
    held.push(count);
  }
  return Json::Object{{"period_s", times->period},
                      {"micro_batches_held", std::move(held)},
                      {"staleness", times->staleness},
                      {"weight_versions", times->versions},
                      {"devices", devices}};
}

}  // namespace

Json chain_run(const JsonReader& value, ObjectReader& run) {
  const search::Chain chain = search::read_chain(run, kMaxLayers);
  search::ChainPipeline pipeline{&chain, read_cut(run, chain.size())};
  pipeline.forward_fraction = run.number_or("forward_fraction", pipeline.forward_fraction, 0, 1);
  pipeline.recompute = run.boolean_or("recompute", false);
  int devices = 0;
  for (const ChainStage& stage : pipeline.stages) {
    devices += stage.replicas;
  }
  const search::ChainLinks links = read_links(run, devices);
  const sim::Schedule& schedule = sim::find_schedule(run.string_or("order", "1f1b"), value.where());
  if (schedule.name == "pipedream") {
    run.finish();
    return dealt_run(value, pipeline, links, devices);
  }
  sim::ScheduleParams params;
  params.stages = static_cast<int>(pipeline.stages.size());
  params.micro_batches =
      static_cast<int>(run.required("micro_batches").integer(1, limits::kMaxBatch));
  params.warm_up = static_cast<int>(run.integer_or("warm_up", 0, 0, limits::kMaxBatch));
  run.finish();
  if (schedule.traits.splits_backward || schedule.traits.uses_chunks ||
      !schedule.traits.synchronous) {
    value.fail(
        "a chain runs with one chunk a device and fused backwards: order gpipe, 1f1b or pipedream");
  }
  const std::string broken = sim::refusal(schedule, params);
  if (!broken.empty()) {
    value.fail(broken);
  }
  const search::ChainRun times = search::run_chain(pipeline, links, schedule.order(params));
  Json memory = Json::array();
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    memory.push(pipeline.memory(pipeline.stages[s], times.result.devices[s].peak_chunks));
  }
  return Json::Object{
      {"iteration_s", times.iteration}, {"memory_bytes", std::move(memory)}, {"devices", devices}};
}

}  // namespace orrery::studies
