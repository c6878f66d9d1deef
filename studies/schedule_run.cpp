// SPDX-License-Identifier: Apache-2.0
#include "studies/schedule_run.hpp"

#include <algorithm>
#include <utility>

#include "sim/pipeline/list_name.hpp"

namespace orrery::studies {

ScheduleMeasures measure_schedule(const sim::PipelineOrder& order, bool synchronous,
                                  const ScheduleRun& run) {
  ScheduleMeasures measures;
  const auto scale = static_cast<double>(run.scale);
  measures.iterations = std::max(1, order.iterations);
  measures.makespan = to_seconds(run.result.makespan).value() / scale;
  measures.bubble_fraction = sim::bubble_fraction(order, run.result);
  const int pieces = sim::pieces_of(order);
  for (const sim::DeviceUse& use : run.result.devices) {
    measures.lists.push_back(sim::list_name(order, measures.lists.size()));
    measures.idle.push_back(to_seconds(sim::idle_of(use)).value() / scale);
    measures.peak_activations.push_back(static_cast<double>(use.peak_chunks) / pieces);
    measures.peak_activation_bytes.push_back(use.peak_activation.value());
  }
  if (std::all_of(measures.peak_activation_bytes.begin(), measures.peak_activation_bytes.end(),
                  [](std::int64_t bytes) { return bytes == 0; })) {
    measures.peak_activation_bytes.clear();
  }
  measures.transfers = sim::num_transfers(order) / measures.iterations;
  measures.versions = sim::worst_of(sim::count_versions(order));
  if (!synchronous && run.has_spans) {
    measures.steady_period = sim::steady_period(order, run.result) * 1e-12 / scale;
  }
  if (synchronous && run.has_spans) {
    measures.iteration_period = sim::iteration_period(order, run.result) * 1e-12 / scale;
  }
  return measures;
}

ScheduleRun run_schedule(const sim::PipelineOrder& order, bool synchronous,
                         const sim::PassTimes& share, bool with_spans) {
  const auto [costs, scale] = sim::share_costs(order, share);
  return run_schedule(order, synchronous, costs, scale, with_spans);
}

ScheduleRun run_schedule(const sim::PipelineOrder& order, bool synchronous,
                         const sim::PipelineCosts& costs, std::int64_t scale, bool with_spans) {
  ScheduleRun run;
  run.scale = scale;
  run.has_spans = (with_spans || !synchronous || order.iterations > 1) &&
                  sim::num_passes(order) <= kMaxPassesWithSpans;
  run.result = sim::evaluate_pipeline(
      order, costs, {.steady_state = !run.has_spans, .record_spans = run.has_spans});
  run.measures = measure_schedule(order, synchronous, run);
  return run;
}

Json::Object to_json(const ScheduleMeasures& measures, bool synchronous) {
  Json lists = Json::array();
  Json idle = Json::array();
  Json peaks = Json::array();
  for (std::size_t stage = 0; stage < measures.idle.size(); ++stage) {
    lists.push(std::string(measures.lists[stage]));
    idle.push(measures.idle[stage]);
    peaks.push(measures.peak_activations[stage]);
  }
  Json::Object object{{"makespan", measures.makespan},
                      {"bubble_fraction", measures.bubble_fraction},
                      {"lists", std::move(lists)},
                      {"idle", std::move(idle)},
                      {"peak_activations", std::move(peaks)}};
  if (!measures.peak_activation_bytes.empty()) {
    Json bytes = Json::array();
    for (const std::int64_t peak : measures.peak_activation_bytes) {
      bytes.push(peak);
    }
    object.emplace_back("peak_activation_bytes", std::move(bytes));
  }
  if (!synchronous) {
    object.emplace_back("staleness", measures.versions.staleness);
    object.emplace_back("weight_versions", measures.versions.versions);
    if (measures.steady_period > 0) {
      object.emplace_back("steady_period", measures.steady_period);
    }
  }
  if (synchronous && measures.iterations > 1) {
    object.emplace_back("iterations", measures.iterations);
  }
  if (measures.iteration_period > 0) {
    object.emplace_back("iteration_period", measures.iteration_period);
  }
  return object;
}

}  // namespace orrery::studies
