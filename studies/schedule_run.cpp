// SPDX-License-Identifier: Apache-2.0
#include "studies/schedule_run.hpp"

#include <algorithm>
#include <utility>

#include "sim/pipeline/list_name.hpp"

namespace orrery::studies {

ScheduleMeasures measure_schedule(const sim::PipelineOrder& order, bool synchronous,
                                  const ScheduleRun& run) {
  ScheduleMeasures measures;
  const double scale = run.scale;
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

namespace {

ScheduleRun run_scaled(const sim::PipelineOrder& order, bool synchronous,
                       const sim::PipelineCosts& costs, double scale, bool with_spans) {
  ScheduleRun run;
  run.scale = scale;
  run.has_spans = (with_spans || !synchronous || order.iterations > 1) &&
                  sim::num_passes(order) <= kMaxPassesWithSpans;
  run.result = sim::evaluate_pipeline(
      order, costs, {.steady_state = !run.has_spans, .record_spans = run.has_spans});
  run.measures = measure_schedule(order, synchronous, run);
  return run;
}

}  // namespace

ScheduleRun run_schedule(const sim::PipelineOrder& order, bool synchronous, sim::PassTimes share,
                         bool with_spans) {
  double shrunk = 1;
  sim::ShareCosts given = sim::share_costs(order, share);
  while (sim::longest_run(order, given.costs) > sim::kLongestRun) {
    for (SimTime* time : {&share.forward, &share.input_grad, &share.weight_grad, &share.send,
                          &share.whole, &share.prediction}) {
      time->ps /= 10;
    }
    shrunk *= 10;
    given = sim::share_costs(order, share);
  }
  return run_scaled(order, synchronous, given.costs, static_cast<double>(given.scale) / shrunk,
                    with_spans);
}

ScheduleRun run_schedule(const sim::PipelineOrder& order, bool synchronous,
                         const sim::PipelineCosts& costs, std::int64_t scale, bool with_spans) {
  return run_scaled(order, synchronous, costs, static_cast<double>(scale), with_spans);
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
