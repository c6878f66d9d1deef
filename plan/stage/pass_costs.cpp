// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/pass_costs.hpp"

#include <algorithm>
#include <numeric>

#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/joined.hpp"
#include "plan/stage/listed_passes.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/shared_output.hpp"
#include "plan/stage/sliced.hpp"
#include "plan/stage/transfers.hpp"

namespace orrery::plan {

namespace {

// Which stages run first: from `inputs` on they look up tokens before all others, and at `second` a
// second chain begins.
struct FirstStages {
  std::size_t second = 0;
  std::size_t inputs = 0;
  bool begins(std::size_t stage) const { return stage == second || stage >= inputs; }
  // Of two stages of a device the one that is less far down its chain runs first.
  std::size_t place(std::size_t stage) const {
    return stage >= inputs ? 0 : 1 + (stage >= second ? stage - second : stage);
  }
};

FirstStages first_stages(const Plan& plan, std::size_t stages) {
  const ScheduleTraits traits = schedule_traits(plan);
  const bool another = traits.two_directions || traits.fills_frozen;
  const auto devices = static_cast<std::size_t>(plan.pp);
  const std::size_t chain = plan.stage_blocks.size();
  return {traits.cascades ? devices
          : another       ? chain
                          : stages,
          traits.shares_output_layer ? chain + devices
          : traits.cascades          ? chain
                                     : stages};
}

// Parameters gathered for the first forward of a step arrive while earlier stages fill the
// pipeline, with waits for their own; what is still missing then delays it, and so do casts of
// weights.
SimTime first_forward(const StageCost& stage, SimTime arrival) {
  return std::max(stage.forward, stage.gathered_forward + stage.gathers_before - arrival) +
         stage.weight_casts;
}

std::vector<SimTime> arrivals_of(std::span<const StageChain> in_step, FirstStages first) {
  std::vector<SimTime> arrivals;
  SimTime arrival;
  for (std::size_t stage = 0; stage < in_step.front().stages.size(); ++stage) {
    arrival = first.begins(stage) ? SimTime{} : arrival;
    arrivals.push_back(arrival);
    SimTime pass;
    SimTime send;
    for (const auto& [stages, sends] : in_step) {
      pass = std::max(pass, first_forward(stages[stage], arrival));
      send = stage < sends.size() ? std::max(send, sends[stage]) : send;
    }
    arrival += pass + send;
  }
  return arrivals;
}

// All forwards run before a backward does (GPipe, or few micro-batches), so that messages of one
// kind follow one another.
bool forwards_first(const Plan& plan) {
  if (plan.schedule_document) {
    return false;
  }
  const sim::Schedule& schedule = sim::find_schedule(plan.schedule, "schedule");
  const sim::ScheduleParams params = schedule_params(plan);
  const std::vector<int>& slices = params.slices_of;  // of packs, each of which counts as one
  const double units = slices.empty() ? static_cast<double>(plan.num_micro_batches())
                                      : std::accumulate(slices.begin(), slices.end(), 0.0);
  return schedule.most_activations(params) >= units;
}

// A message occupies its link for all but its latency, so a stage whose pass is shorter than that
// is held up by its messages: it waits, and what it sends arrives so much sooner after it. `before`
// is what of the pass comes before the message: of a cut backward the input gradients.
void wait_for_link(SimTime latency, SimTime before, SimTime& pass, SimTime& send) {
  const SimTime busy = send - std::min(send, latency);
  const SimTime wait = std::max(SimTime{}, busy - before);
  pass += wait;
  send -= wait;
}

SimTime divided(SimTime time, int parts) { return {(time.ps + parts - 1) / parts}; }

// Stages without a backward (frozen ones come first) take no gradient.
void drop_unwanted_gradients(const std::vector<StageCost>& stages, sim::PipelineCosts& costs) {
  for (std::size_t stage = 0; stage < costs.send_backward.size(); ++stage) {
    if (stages[stage].backward > SimTime{}) {
      return;
    }
    costs.backward[stage + 1] = stages[stage + 1].backward;
    costs.send_backward[stage] = SimTime{};
  }
}

// A decoder's unit waits for the last part of its features, and their gradients travel together.
void add_module_latencies(const Plan& plan, const sim::PipelineOrder& order,
                          const std::vector<SimTime>& sends, sim::PipelineCosts& passes) {
  const bool trained = !encoder_is_frozen(plan.network);
  for (const sim::Edge& edge : order.edges) {
    const bool forward = edge.to > edge.from;
    const SimTime part = sends[std::min(edge.from, edge.to)];
    passes.edge_latency.push_back(forward ? part : trained ? part * plan.encoder_parts : SimTime{});
  }
}

// From an empty queue to the end, beyond what the pass takes when the host is ahead.
SimTime late_start(const PassCost& pass) {
  return std::max(SimTime{}, to_sim_time(pass.device + pass.stall) - pass.time);
}

}  // namespace

std::vector<SimTime> first_arrivals(std::span<const StageChain> in_step) {
  const std::size_t stages = in_step.front().stages.size();
  return arrivals_of(in_step, {stages, stages});
}

void queue_gathers(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                   std::vector<StageCost>& stages) {
  const bool gathers = std::any_of(stages.begin(), stages.end(), [](const StageCost& stage) {
    return stage.gather_total > SimTime{};
  });
  const bool chunks = stages.size() > static_cast<std::size_t>(plan.pp);
  if (!plan.execution.overlap_param_gather || !gathers || !chunks) {
    return;
  }
  const FirstStages first = first_stages(plan, stages.size());
  std::vector<std::size_t> in_turn(stages.size());
  std::iota(in_turn.begin(), in_turn.end(), std::size_t{0});
  std::stable_sort(in_turn.begin(), in_turn.end(),
                   [&](std::size_t a, std::size_t b) { return first.place(a) < first.place(b); });
  std::vector<SimTime> queued(static_cast<std::size_t>(plan.pp));
  for (const std::size_t stage : in_turn) {
    if (stages[stage].gather_total > SimTime{}) {
      SimTime& stream = queued[device_of[stage]];
      stages[stage].gathers_before = stream;
      stream += stages[stage].gather_total;
    }
  }
}

MessageWaits message_waits(const Plan& plan, const BlockCosts& costs,
                           const std::vector<StageCost>& stages,
                           const std::vector<SimTime>& sends) {
  const Execution& execution = plan.execution;
  const bool splits = schedule_traits(plan).splits_backward;
  MessageWaits waits;
  for (std::vector<SimTime>* list :
       {&waits.forward, &waits.backward, &waits.not_first, &waits.not_last}) {
    list->resize(stages.size());
  }
  if (execution.overlap_p2p) {
    return waits;
  }
  const bool whole = plan.slices == 1;
  const bool serial = execution.serial_exchanges && whole;
  const int parts = parts_sent(plan, plan.blocks.front().layout);
  bool trained = false;  // a stage so far, which wants a gradient
  for (std::size_t stage = 0; stage < sends.size(); ++stage) {
    trained = trained || stages[stage].backward > SimTime{};
    waits.forward[stage] += sends[stage];
    waits.backward[stage + 1] += trained ? sends[stage] : SimTime{};
    if (serial && trained && sends[stage] > SimTime{}) {
      // The other one's message; its parts are gathered by whom they are for.
      const SimTime message =
          sends[stage] - gather_of_parts(plan, costs, stages[stage].boundary, parts);
      waits.forward[stage + 1] += message;
      waits.backward[stage] += message;
      waits.not_first[stage + 1] = message;
      waits.not_last[stage] = splits ? SimTime{} : message;
    }
  }
  if (!execution.synchronised_messages || execution.blocking_launches || splits || !whole) {
    return waits;
  }
  // With several chunks one exchange serves a forward and the backward that follows it.
  const bool together = plan.chunks > 1 && plan.pp > 1;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const bool receives = stage > 0 && sends[stage - 1] > SimTime{};
    const bool receives_gradient = stage < sends.size() && sends[stage] > SimTime{};
    if (together || receives) {
      waits.forward[stage] += late_start(stages[stage].forward_cost);
    }
    if (!together && receives_gradient) {
      waits.backward[stage] += late_start(stages[stage].backward_cost);
    }
  }
  return waits;
}

namespace {

// When the first forwards can begin where every stage runs at once.
std::vector<SimTime> arrivals_alone(const Plan& plan, const std::vector<StageCost>& stages,
                                    const std::vector<SimTime>& sends) {
  const StageChain alone{stages, sends};
  return arrivals_of({&alone, 1}, first_stages(plan, stages.size()));
}

// Sums over the stages, which follow, are times that can be simulated.
void check_sums(const std::vector<StageCost>& stages, const std::vector<SimTime>& sends) {
  constexpr std::int64_t kUses = 4;  // of a message: both ways, and what waits for it
  SimTime sum;
  for (const StageCost& stage : stages) {
    for (const SimTime part : {stage.forward, stage.backward, stage.last_backward,
                               stage.gathered_forward, stage.gathers_before, stage.gather_total}) {
      add_times(sum, part);
    }
  }
  for (const SimTime send : sends) {
    add_times(sum, send, kUses);
  }
}

}  // namespace

sim::PipelineCosts separate_costs(const Plan& plan, const BlockCosts& block_costs,
                                  const std::vector<StageCost>& stages,
                                  const std::vector<SimTime>& sends,
                                  const std::vector<SplitTimes>& splits,
                                  std::vector<SimTime> arrivals) {
  check_sums(stages, sends);
  sim::PipelineCosts costs;
  const ScheduleTraits traits = schedule_traits(plan);
  const int portions = traits.fills_frozen ? frozen_portions(plan.network) : 1;
  for (const StageCost& stage : stages) {
    const bool copy = costs.forward.size() >= plan.stage_blocks.size();
    costs.forward.push_back(copy ? divided(stage.forward, portions) : stage.forward);
    costs.backward.push_back(stage.backward);
    costs.last_backward_extra.push_back(stage.last_backward - stage.backward);
    if (traits.recomputes) {
      costs.recompute.push_back(stage.forward * std::int64_t{stage.forwards - 1});
    }
  }
  if (arrivals.empty()) {
    arrivals = arrivals_alone(plan, stages, sends);
  }
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const SimTime first = first_forward(stages[stage], arrivals[stage]);
    costs.first_forward_extra.push_back(first - stages[stage].forward);
  }
  costs.send_forward = sends;
  costs.send_backward = sends;
  if (!plan.execution.overlap_p2p) {
    const MessageWaits waits = message_waits(plan, block_costs, stages, sends);
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      costs.forward[stage] += waits.forward[stage];
      costs.backward[stage] += waits.backward[stage];
      costs.first_forward_extra[stage] -= waits.not_first[stage];
      costs.last_backward_extra[stage] -= waits.not_last[stage];
    }
    std::fill(costs.send_forward.begin(), costs.send_forward.end(), SimTime{});
    std::fill(costs.send_backward.begin(), costs.send_backward.end(), SimTime{});
  } else if (!sends.empty() && forwards_first(plan)) {
    const SimTime latency = to_sim_time(plan.cluster.node.scale_out.latency);
    for (std::size_t stage = 0; stage < sends.size(); ++stage) {
      const SimTime gradients =
          splits.empty() ? costs.backward[stage + 1] : splits[stage + 1].input_grad;
      wait_for_link(latency, costs.forward[stage], costs.forward[stage], costs.send_forward[stage]);
      wait_for_link(latency, gradients, costs.backward[stage + 1], costs.send_backward[stage]);
    }
  }
  if (frozen_positions(plan.network) > 0) {
    drop_unwanted_gradients(stages, costs);
  }
  for (std::size_t stage = 0; stage < splits.size(); ++stage) {
    const SimTime waiting = costs.backward[stage] - stages[stage].backward;  // for a message
    costs.weight_grad.push_back(splits[stage].weight_grad);
    costs.input_grad.push_back(splits[stage].input_grad + waiting);
  }
  return costs;
}

sim::PipelineCosts pipeline_costs(const Plan& plan, BlockCosts& block_costs,
                                  const std::vector<StageCost>& stages,
                                  const std::vector<SimTime>& sends,
                                  const std::vector<SplitTimes>& splits) {
  sim::PipelineCosts costs = separate_costs(plan, block_costs, stages, sends, splits);
  if (schedule_traits(plan).joins_passes) {
    add_hidden(stages, plan, block_costs, costs);
  }
  return costs;
}

void add_edge_latencies(const Plan& plan, const sim::PipelineOrder& order,
                        const std::vector<StageCost>& stages, const std::vector<SimTime>& sends,
                        const BlockCosts& costs, sim::PipelineCosts& passes) {
  if (order.edges.empty()) {
    return;
  }
  if (plan.schedule_document != nullptr) {
    passes.edge_latency = edge_messages(plan, order, costs);
    return;
  }
  if (schedule_traits(plan).uses_servers || schedule_traits(plan).copies_to_host) {
    return;  // the services have all of it
  }
  if (schedule_traits(plan).by_modules) {
    return add_module_latencies(plan, order, sends, passes);
  }
  const std::size_t last = plan.stage_blocks.size() - 1;
  passes.edge_latency = shard_latencies(plan, order, stages[last].boundary.bytes(), costs);
}

namespace {

// Of a slice, in the mean.
std::vector<sim::PassTimes> slice_pass_times(const Plan& plan,
                                             const std::vector<std::uint16_t>& device_of,
                                             BlockCosts& costs) {
  const SliceCosts slices = slice_costs(plan, stage_contents(plan, device_of),
                                        [&](const StageContent& content, const Slice& slice) {
                                          return add_up_stage(content, plan, costs, slice);
                                        });
  const std::vector<StageCost> stages = first_slices(slices);
  const std::vector<SimTime> sends = transfers(plan, costs, stages, device_of);
  sim::PipelineCosts passes = separate_costs(plan, costs, stages, sends, {});
  add_unit_times(plan, slices, sends, passes);
  std::vector<sim::PassTimes> times;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    times.push_back({passes.forward[stage], passes.backward[stage], SimTime{},
                     stage < sends.size() ? passes.send_forward[stage] : SimTime{}});
  }
  return times;
}

}  // namespace

std::vector<sim::PassTimes> pass_times(const Plan& plan,
                                       const std::vector<std::uint16_t>& device_of,
                                       BlockCosts& costs, SplitBackwards& splits) {
  if (plan.slices > 1) {
    return slice_pass_times(plan, device_of, costs);
  }
  std::vector<StageCost> stages;
  std::vector<SplitTimes> of_stages;
  for (const StageContent& content : stage_contents(plan, device_of)) {
    stages.push_back(add_up_stage(content, plan, costs));
    of_stages.push_back(splits.times(content, plan, costs, stages.back()));
  }
  hand_on(stages);
  const std::vector<SimTime> sends = transfers(plan, costs, stages, device_of);
  const sim::PipelineCosts passes = separate_costs(plan, costs, stages, sends, of_stages);
  std::vector<sim::PassTimes> times;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    times.push_back({passes.forward[stage], passes.input_grad[stage], passes.weight_grad[stage],
                     stage < sends.size() ? passes.send_forward[stage] : SimTime{},
                     passes.backward[stage]});
  }
  return times;
}

}  // namespace orrery::plan
