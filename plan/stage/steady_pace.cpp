// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/steady_pace.hpp"

#include <algorithm>
#include <utility>

#include "plan/schedule_traits.hpp"
#include "plan/stage/arcs.hpp"
#include "plan/stage/servers.hpp"

namespace orrery::plan {

namespace {

std::vector<SimTime> update_times(const Plan& plan, const std::vector<StageCost>& stages,
                                  BlockCosts& costs) {
  std::vector<SimTime> times;
  const bool reduces = !schedule_traits(plan).uses_servers;
  for (const StageCost& stage : stages) {
    times.push_back(to_sim_time(update_time(plan, stage, costs)) + stage.weight_casts +
                    (reduces ? stage.reduce_total + stage.gather_total : SimTime{}));
  }
  return times;
}

// Services follow the stages of the workers.
void add_service_times(const Plan& plan, const sim::PipelineOrder& order,
                       const std::vector<StageCost>& stages, const BlockCosts& costs,
                       sim::PipelineCosts& passes) {
  if (!schedule_traits(plan).uses_servers) {
    return;
  }
  const SimTime time = service_time(plan, stages, costs);
  for (const sim::Chain& chain : order.chains) {
    if (chain.role == sim::Role::Service) {
      passes.forward[static_cast<std::size_t>(chain.first)] = time;
    }
  }
}

}  // namespace

std::string prediction_problem(const Plan& plan) {
  return schedule_traits(plan).predicts_weights && !updates_on_device(plan)
             ? "weights are predicted from the optimizer's moments on the device: do not offload "
               "the optimizer"
             : "";
}

SteadyPace run_without_flush(const Plan& plan, const sim::PipelineOrder& order,
                             const std::vector<StageCost>& stages, sim::PipelineCosts& passes,
                             BlockCosts& costs, sim::PipelineResult& result) {
  // Reductions and gathers are in the updates, not in the first and last pass of the run.
  passes.last_backward_extra.clear();
  passes.first_forward_extra.clear();
  passes.optimizer = update_times(plan, stages, costs);
  add_service_times(plan, order, stages, costs, passes);
  std::vector<SimTime> predictions;
  for (const StageCost& stage : stages) {
    predictions.push_back(prediction_time(plan, stage, costs));
  }
  sim::add_predictions(order, predictions, passes);
  result = sim::evaluate_pipeline(order, passes, {.steady_state = false, .record_spans = true});
  SteadyPace pace;
  pace.versions = sim::worst_of(sim::count_versions(order));
  pace.versions.staleness = global_staleness(plan, pace.versions.staleness);
  pace.period = Seconds(sim::steady_period(order, result) * 1e-12);
  const double of_run = static_cast<double>(order.micro_batches) / order.slices;
  if (pace.period.value() <= 0) {  // too short a run to have a middle
    pace.period = to_seconds(result.makespan) / of_run;
  }
  // No pace is faster than the busiest device, however short the run.
  for (const sim::DeviceUse& use : result.devices) {
    pace.period = std::max(pace.period, to_seconds(use.busy) / of_run);
  }
  if (schedule_traits(plan).runs_arcs) {
    pace.period = std::max(pace.period, to_seconds(busiest_link(order, passes)));
  }
  result.devices.resize(static_cast<std::size_t>(plan.pp));  // workers and services alike go
  const auto micro_batches = static_cast<double>(plan.num_micro_batches());
  pace.end.iteration = to_sim_time(pace.period * micro_batches);
  pace.end.gradients_ready = result.makespan;
  const double share = micro_batches / of_run;
  pace.least_busy = to_seconds(pace.end.iteration);
  for (const sim::DeviceUse& use : result.devices) {
    pace.busy = std::max(pace.busy, to_seconds(use.busy) * share);
    pace.least_busy = std::min(pace.least_busy, to_seconds(use.busy) * share);
  }
  return pace;
}

}  // namespace orrery::plan
