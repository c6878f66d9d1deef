// SPDX-License-Identifier: Apache-2.0
#include "plan/steady_pace.hpp"

#include <algorithm>
#include <utility>

namespace orrery::plan {

namespace {

std::vector<SimTime> update_times(const Plan& plan, const std::vector<StageCost>& stages,
                                  const std::vector<std::uint16_t>& device_of, BlockCosts& costs) {
  std::vector<SimTime> times;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const Seconds optimizer = optimizer_time(plan, {stages[stage]}, {device_of[stage]}, costs);
    times.push_back(to_sim_time(optimizer) + stages[stage].reduce_total +
                    stages[stage].gather_total);
  }
  return times;
}

}  // namespace

SteadyPace run_without_flush(const Plan& plan, const sim::PipelineOrder& order,
                             const std::vector<StageCost>& stages, sim::PipelineCosts passes,
                             BlockCosts& costs, sim::PipelineResult& result) {
  // Reductions and gathers are in the updates, not in the first and last pass of the run.
  passes.last_backward_extra.clear();
  passes.first_forward_extra.clear();
  passes.optimizer = update_times(plan, stages, order.device_of, costs);
  result = sim::evaluate_pipeline(order, passes, {.steady_state = false, .record_spans = true});
  SteadyPace pace;
  pace.versions = sim::worst_of(sim::count_versions(order));
  pace.period = Seconds(sim::steady_period(order, result) * 1e-12);
  if (pace.period.value() <= 0) {  // too short a run to have a middle
    pace.period = to_seconds(result.makespan) / static_cast<double>(order.micro_batches);
  }
  // No pace is faster than the busiest device, however short the run.
  const auto units = static_cast<double>(order.micro_batches);
  for (const sim::DeviceUse& use : result.devices) {
    pace.period = std::max(pace.period, to_seconds(use.busy) / units);
  }
  const auto micro_batches = static_cast<double>(plan.num_micro_batches());
  pace.end.iteration = to_sim_time(pace.period * micro_batches);
  pace.end.gradients_ready = result.makespan;
  const double share = micro_batches / units;
  pace.least_busy = to_seconds(pace.end.iteration);
  for (const sim::DeviceUse& use : result.devices) {
    pace.busy = std::max(pace.busy, to_seconds(use.busy) * share);
    pace.least_busy = std::min(pace.least_busy, to_seconds(use.busy) * share);
  }
  return pace;
}

void report_pace(const SteadyPace& pace, Simulation& simulation) {
  simulation.synchronous = false;
  simulation.staleness = pace.versions.staleness;
  simulation.weight_versions = pace.versions.versions;
  simulation.steady_period = pace.period;
  const Seconds iteration = simulation.iteration_time;
  simulation.breakdown.bubble = std::max(Seconds(), iteration - pace.busy);
  simulation.bubble_fraction = std::max(0.0, 1.0 - pace.least_busy / iteration);
}

}  // namespace orrery::plan
