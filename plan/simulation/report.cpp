// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/report.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "plan/block/operator_replay.hpp"
#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/pass_costs.hpp"
#include "plan/stage/validated_pace.hpp"
#include "plan/training_changes.hpp"

namespace orrery::plan {

namespace {

// One device's share of an iteration, in seconds.
struct DeviceTimes {
  Seconds compute;
  Seconds recompute;
  std::array<Seconds, kNumAxes> exposed{};
  Seconds shards;  // of embedding and head
  Seconds amax;
  Seconds data;
  Seconds offload;
  Seconds waiting_sends;
  SimTime hidden;  // by joined passes, of each pair of stages one
  SimTime covered;
};

DeviceTimes times_of_device(const Plan& plan, BlockCosts& costs,
                            const std::vector<StageCost>& stages, const std::vector<SimTime>& sends,
                            const std::vector<std::uint16_t>& device_of, std::size_t device) {
  DeviceTimes times;
  const double copies = schedule_traits(plan).two_directions ? 2 : 1;
  const double micro_batches = static_cast<double>(plan.num_micro_batches()) / copies;
  const MessageWaits waits = message_waits(plan, costs, stages, sends);
  for (std::size_t index = 0; index < stages.size(); ++index) {
    if (device_of[index] != device) {
      continue;
    }
    const StageCost& stage = stages[index];
    const double count = micro_batches * runs_of_stage(plan, index);
    const double forwards = count * stage.forwards;
    times.compute += stage.forward_cost.compute * forwards + stage.backward_cost.compute * count;
    times.compute += schedule_traits(plan).synchronous ? to_seconds(stage.weight_casts) : Seconds();
    times.recompute += stage.recompute * count + stage.forward_cost.compute * (forwards - count);
    times.shards += stage.shard_collectives * count;
    times.amax += stage.amax * count;
    const Seconds backward = stage.exposed_data_cut * stage.cut_fraction +
                             stage.exposed_data_backward * (1 - stage.cut_fraction);
    times.data += stage.exposed_data_forward * forwards + backward * count;
    times.offload += stage.exposed_offload_forward * forwards +
                     stage.exposed_offload_backward * count + stage.exposed_offload_first;
    for (std::size_t axis = 0; axis < kNumAxes; ++axis) {
      times.exposed[axis] +=
          stage.forward_cost.exposed[axis] * forwards + stage.backward_cost.exposed[axis] * count;
    }
    for (std::size_t other = 0; other < stages.size(); ++other) {
      if (device_of[other] == device) {
        const auto [hidden, covered] =
            costs.joined_stages(stage.joined_layers, stages[other].joined_layers);
        times.hidden += hidden;
        times.covered += covered;
      }
    }
    times.waiting_sends +=
        to_seconds(waits.forward[index] + waits.backward[index]) * (count * plan.slices);
  }
  return times;
}

// A forward of an operator for all sequences of an iteration, attention in full, as MFU counts it.
Flops counted_forward(const Plan& plan, const models::Block& block, const models::Operator& op) {
  if (op.kind != models::OpKind::Attention || plan.joined_sequences.empty() || block.tokens > 0) {
    return models::forward_flops(block, op, {plan.batch, plan.sequence}, false);
  }
  Flops total;
  for (const std::int64_t tokens : plan.joined_sequences) {
    total += models::forward_flops(block, op, {plan.batch, tokens}, false);
  }
  return total;
}

// Of a block, for all sequences of an iteration.
Flops recomputed_in(int index, const BlockPlan& layout, const Plan& plan, BlockCosts& costs) {
  const models::Block& block = plan.network.blocks[static_cast<std::size_t>(index)];
  if (layout.recompute == Recompute::None || block.frozen) {
    return {};
  }
  const std::vector<double> shares = shares_run_again(costs.block_context(
      index, layout, plan.micro_batch_of(layout, index), slices_of(plan).front()));
  Flops total;
  for (std::size_t op = 0; op < shares.size(); ++op) {
    total += counted_forward(plan, block, block.operators[op]) * shares[op];
  }
  return total;
}

Flops recompute_flops(const Plan& plan, BlockCosts& costs) {
  const std::vector<int>& chain = plan.network.chain;
  Flops total;
  Flops each;  // of neighbours that are alike
  for (std::size_t position = 0; position < chain.size(); ++position) {
    const BlockPlan& layout = plan.layout_of(static_cast<int>(position));
    const bool alike = position > 0 && chain[position] == chain[position - 1] &&
                       &layout == &plan.layout_of(static_cast<int>(position) - 1);
    each = alike ? each : recomputed_in(chain[position], layout, plan, costs);
    total += each;
  }
  return total;
}

void fill_rates(const Plan& plan, const StepWork& work, Simulation& result) {
  const double gpus = plan.num_gpus();
  result.tokens_per_second_per_gpu = work.tokens / result.iteration_time.value() / gpus;
  const FlopsPerSecond peak = plan.cluster.gpu.peak_of(plan.precision) * gpus;
  result.mfu_fraction = work.model / (peak * result.iteration_time);
  result.hfu_fraction = (work.model + work.recomputed) / (peak * result.iteration_time);
}

void add_exposed(std::string_view what, Seconds time, TimeBreakdown& breakdown) {
  if (time.value() > 0) {
    breakdown.exposed_communication[std::string(what)] += time;
  }
}

// What a device waits for in its passes, by axis.
void fill_exposed(const DeviceTimes& times, const sim::DeviceUse& use, TimeBreakdown& breakdown) {
  const auto add = [&](std::string_view what, Seconds time) { add_exposed(what, time, breakdown); };
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) {
    Seconds exposed = times.exposed[axis];
    if (static_cast<Axis>(axis) == Axis::Expert && times.hidden > SimTime{}) {
      const double covered = to_seconds(times.covered) / to_seconds(times.hidden);
      exposed = std::max(Seconds(), exposed - to_seconds(use.hidden) * covered);
    }
    add(to_text(static_cast<Axis>(axis)), exposed);
  }
  add("dp", times.data);
  add("vp", times.shards);
  add("amax", times.amax);
  add("offload", times.offload);
  add("pp", times.waiting_sends);
}

}  // namespace

std::size_t busiest_device(const sim::PipelineResult& pipeline) {
  const auto busiest = std::max_element(
      pipeline.devices.begin(), pipeline.devices.end(),
      [](const sim::DeviceUse& a, const sim::DeviceUse& b) { return a.busy < b.busy; });
  return static_cast<std::size_t>(busiest - pipeline.devices.begin());
}

double largest_bubble(const sim::PipelineResult& pipeline) {
  SimTime longest;
  double fraction = 0;
  for (const sim::DeviceUse& use : pipeline.devices) {
    const SimTime span = use.last_end - use.first_start;
    if (span - use.busy > longest) {
      longest = span - use.busy;
      fraction = static_cast<double>(longest.ps) / static_cast<double>(span.ps);
    }
  }
  return fraction;
}

Simulation::Simulation() = default;
Simulation::Simulation(const Simulation&) = default;
Simulation::Simulation(Simulation&&) noexcept = default;
Simulation& Simulation::operator=(const Simulation&) = default;
Simulation& Simulation::operator=(Simulation&&) noexcept = default;
Simulation::~Simulation() = default;

std::vector<ByteCount> kept_by_units(const Plan& plan, const sim::PipelineOrder& order,
                                     const std::vector<StageCost>& stages) {
  const auto of_order = static_cast<std::size_t>(order.num_virtual_stages);
  std::vector<ByteCount> kept(std::max(of_order, stages.size()));
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    kept[stage] = ByteCount((stages[stage].saved + stages[stage].saved_ends).value() / plan.slices);
  }
  return kept;
}

StepWork step_work(const Plan& plan, BlockCosts& costs) {
  return {static_cast<double>(plan.batch) * static_cast<double>(plan.sequence),
          models::model_flops(plan.network, {plan.batch, plan.sequence}),
          recompute_flops(plan, costs)};
}

Flops repeated_forwards(const Plan& plan, const std::vector<StageCost>& stages) {
  const double copies = schedule_traits(plan).two_directions ? 2 : 1;
  const std::size_t chain = plan.stage_blocks.size();
  Flops total;
  std::size_t position = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    position = stage % chain == 0 ? 0 : position;  // a copy of the network begins
    if (stages[stage].forwards == 1) {
      position += static_cast<std::size_t>(plan.stage_blocks[stage % chain]);
      continue;
    }
    for (int block = 0; block < plan.stage_blocks[stage % chain]; ++block, ++position) {
      const models::Block& here =
          plan.network.blocks[static_cast<std::size_t>(plan.network.chain[position])];
      for (const models::Operator& op : here.operators) {
        total += counted_forward(plan, here, op) * ((stages[stage].forwards - 1) / copies);
      }
    }
  }
  return total;
}

TimeBreakdown passes_breakdown(const Plan& plan, const std::vector<StageCost>& stages,
                               const std::vector<SimTime>& sends,
                               const std::vector<std::uint16_t>& device_of,
                               const sim::PipelineResult& pipeline, std::size_t device,
                               BlockCosts& costs) {
  const DeviceTimes times = times_of_device(plan, costs, stages, sends, device_of, device);
  TimeBreakdown breakdown;
  breakdown.compute = times.compute;
  breakdown.recompute = times.recompute;
  fill_exposed(times, pipeline.devices[device], breakdown);
  return breakdown;
}

void add_step_end(const StepEnd& end, SimTime busy, SimTime makespan, TimeBreakdown& breakdown) {
  breakdown.optimizer = end.optimizer;
  breakdown.bubble = to_seconds(makespan - busy);
  add_exposed("dp", to_seconds(end.gradients_ready - makespan) + end.parameter_gather, breakdown);
}

void fill_report(const Plan& plan, const std::vector<StageCost>& stages,
                 const std::vector<SimTime>& sends, const std::vector<std::uint16_t>& device_of,
                 const StepEnd& end, const StepWork& work, BlockCosts& costs, Simulation& result) {
  result.iteration_time = to_seconds(end.iteration);
  result.bubble_fraction = largest_bubble(result.pipeline);
  fill_rates(plan, work, result);
  const std::size_t device = busiest_device(result.pipeline);
  const SimTime busy = result.pipeline.devices[device].busy;
  const SimTime makespan = result.pipeline.makespan;
  TimeBreakdown& breakdown = result.breakdown;
  breakdown = passes_breakdown(plan, stages, sends, device_of, result.pipeline, device, costs);
  add_step_end(end, busy, makespan, breakdown);
  if (validates_afterwards(plan)) {  // iterations overlap: what is left of the pace
    const Seconds reduction = to_seconds(end.gradients_ready - makespan);
    breakdown.bubble = std::max(Seconds(), result.iteration_time - to_seconds(busy) -
                                               end.optimizer - reduction - end.parameter_gather);
  }
  if (updates_late(plan)) {
    result.synchronous = false;
    result.staleness = 1;
    result.steady_period = result.iteration_time / static_cast<double>(plan.num_micro_batches());
  }
}

void report_pace(const Plan& plan, const SteadyPace& pace, Simulation& simulation) {
  simulation.synchronous = schedule_traits(plan).synchronous && !updates_late(plan);
  simulation.staleness = pace.versions.staleness + (updates_late(plan) ? 1 : 0);
  simulation.weight_versions = pace.versions.versions;
  simulation.steady_period = simulation.synchronous ? Seconds() : pace.period;
  const Seconds iteration = simulation.iteration_time;
  if (schedule_traits(plan).runs_arcs) {  // a device's passes are of several stages' parts
    simulation.breakdown.compute = pace.busy;
    simulation.breakdown.recompute = Seconds();
    simulation.breakdown.exposed_communication.clear();
  }
  simulation.breakdown.bubble = std::max(Seconds(), iteration - pace.busy);
  if (pace.overlaps) {
    simulation.bubble_fraction = std::max(0.0, 1.0 - pace.least_busy / iteration);
  }
}

void fill_fit(const Plan& plan, Simulation& result) {
  const MemoryVerdict verdict = memory_verdict(plan, result.memory);
  if (!verdict.fits) {
    result.does_not_fit = verdict.text;
  }
  const NodeMemory node = node_memory(plan, result.memory);
  result.host_per_node = node.host;
  result.disk_per_node = node.disk;
}

}  // namespace orrery::plan
