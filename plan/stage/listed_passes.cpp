// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/listed_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/schedule_traits.hpp"
#include "plan/stage/token_table.hpp"
#include "plan/stage/transfers.hpp"
#include "sim/orders/listed_order.hpp"
#include "sim/orders/schedule_document.hpp"
#include "sim/pipeline/unit_times.hpp"

namespace orrery::plan {

namespace {

constexpr ByteCount kMessage(1);

// Of a virtual stage, in the whole run.
int updates_of_a_stage(const sim::PipelineOrder& order) {
  std::uint32_t updates = 0;
  for (const std::vector<sim::Pass>& list : order.passes) {
    for (const sim::Pass& pass : list) {
      if (pass.kind == sim::PassKind::Optimizer) {
        updates = std::max(updates, pass.micro_batch + 1);
      }
    }
  }
  return static_cast<int>(updates);
}

std::string updates_problem(const Plan& plan, const sim::PipelineOrder& order) {
  const int each = updates_of_a_stage(order) / order.iterations;
  if (each != 1) {
    return fmt::format(
        "a step of a plan updates each stage once, but an iteration lists {} updates \"U\": state "
        "\"iterations\": {}, or list one for all micro-batches",
        each, each * order.iterations);
  }
  if (!order.chains.empty()) {
    return "copies of the network add up their gradients after the step: leave passes \"U\" out";
  }
  if (may_sum_tables(plan, order.device_of)) {
    return "devices with a stage that uses a tied table add up its gradients before they update: "
           "leave passes \"U\" out";
  }
  return "";
}

// Before the update and after it, where nothing of it is hidden.
SimTime exchanges(const Plan& plan, const StageCost& stage) {
  return stage.reduce_tail + (plan.execution.overlap_param_gather ? SimTime{} : stage.gather_total);
}

void add_updates(const Plan& plan, const std::vector<StageCost>& stages, BlockCosts& costs,
                 sim::PipelineCosts& passes, StepEnd& end) {
  for (const StageCost& stage : stages) {
    const Seconds optimizer = update_time(plan, stage, costs);
    const SimTime exchanged = exchanges(plan, stage);
    passes.optimizer.push_back(to_sim_time(optimizer) + exchanged);
    end.optimizer = std::max(end.optimizer, optimizer);
    end.parameter_gather = std::max(end.parameter_gather, to_seconds(exchanged));
  }
}

}  // namespace

std::string listed_passes_problem(const Plan& plan, const sim::PipelineOrder& order) {
  const ScheduleTraits traits = schedule_traits(plan);
  if (!order.chains.empty() && !sim::mirrors(order)) {
    return "directions of a plan are two, mirror images of each other on the devices: list "
           "direction 1 on the devices of direction 0 in reverse";
  }
  if (traits.recomputes && plan.slices > 1) {
    return "in a plan passes \"R\" run whole micro-batches again: set slices to 1, or leave them "
           "out and let \"recompute\" of the blocks say it";
  }
  if (plan.slices > 1 && (traits.splits_backward || traits.two_directions)) {
    // Parts of a slice's backward have no costs of their own, and its units those of one chain.
    return fmt::format("in a plan slices run {}: set slices to 1, or {}",
                       traits.two_directions ? "in one direction" : "their backwards whole",
                       traits.two_directions          ? "list one direction"
                       : plan.schedule_document->rule ? "leave \"split_backward\" out"
                                                      : "list \"BW\" for each \"B\" and \"W\"");
  }
  if (order.iterations > 1 && plan.slices > 1) {
    return "in a plan slices run one iteration: set \"iterations\" or slices to 1";
  }
  return traits.lists_updates ? updates_problem(plan, order) : "";
}

std::vector<SimTime> edge_messages(const Plan& plan, const sim::PipelineOrder& order,
                                   const BlockCosts& costs) {
  TransferTimes times(costs);
  std::vector<SimTime> messages;
  for (const sim::Edge& edge : order.edges) {
    const int from = sim::device_of(order, edge.from_lane, edge.from);
    const int to = sim::device_of(order, edge.to_lane, edge.to);
    messages.push_back(from == to ? SimTime{} : times.of(plan, kMessage, 1, from, to));
  }
  return messages;
}

void count_forwards(const sim::PipelineOrder& order, std::vector<StageCost>& stages) {
  const std::vector<bool> again = sim::recomputed_stages(order);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    stages[stage].forwards = again[stage] ? 2 : 1;
  }
}

void count_cut_backwards(const sim::PipelineOrder& order, std::vector<StageCost>& stages) {
  std::vector<double> cut(stages.size());
  std::vector<double> whole(stages.size());
  for (const std::vector<sim::Pass>& passes : order.passes) {
    for (const sim::Pass& pass : passes) {
      if (pass.virtual_stage < stages.size()) {  // not of a layer that all devices share
        cut[pass.virtual_stage] += pass.kind == sim::PassKind::InputGrad ? 1 : 0;
        whole[pass.virtual_stage] += pass.kind == sim::PassKind::Backward ? 1 : 0;
      }
    }
  }
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const double backwards = cut[stage] + whole[stage];
    stages[stage].cut_fraction = backwards > 0 ? cut[stage] / backwards : 0;
  }
}

SteadyPace run_with_updates(const Plan& plan, const sim::PipelineOrder& order,
                            const std::vector<StageCost>& stages, sim::PipelineCosts& passes,
                            BlockCosts& costs, sim::PipelineResult& result) {
  SteadyPace pace;
  pace.overlaps = order.iterations > 1;
  add_updates(plan, stages, costs, passes, pace.end);
  if (order.iterations > 1) {
    sim::end_every_iteration(order, passes);
  }
  result = sim::evaluate_pipeline(order, passes, {.steady_state = false, .record_spans = true});
  pace.end.gradients_ready = result.makespan;
  pace.end.iteration = result.makespan;
  if (order.iterations > 1) {
    pace.end.iteration = SimTime{std::llround(sim::iteration_period(order, result))};
  }
  pace.least_busy = to_seconds(pace.end.iteration);
  for (const sim::DeviceUse& use : result.devices) {
    // No pace is faster than the busiest device, whatever the first iterations gain.
    const SimTime busy{(use.busy.ps + order.iterations - 1) / order.iterations};
    pace.end.iteration = std::max(pace.end.iteration, busy);
    pace.busy = std::max(pace.busy, to_seconds(busy));
    pace.least_busy = std::min(pace.least_busy, to_seconds(busy));
  }
  pace.period = to_seconds(pace.end.iteration) / static_cast<double>(plan.num_micro_batches());
  return pace;
}

}  // namespace orrery::plan
