// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/step_end.hpp"

#include <algorithm>
#include <array>

#include "plan/schedule_traits.hpp"
#include "plan/stage/offload_time.hpp"
#include "plan/stage/parameter_broadcasts.hpp"
#include "plan/stage/token_table.hpp"

namespace orrery::plan {

namespace {

// Gradient reductions of a device's chunks queue on one stream in the order their backwards end;
// without overlap they all wait for the last one.
SimTime reduction_end(const std::vector<StageCost>& stages, std::vector<std::size_t> chunks,
                      const std::vector<SimTime>& backwards, const std::vector<SimTime>& complete,
                      bool overlap) {
  std::stable_sort(chunks.begin(), chunks.end(),
                   [&](std::size_t a, std::size_t b) { return backwards[a] < backwards[b]; });
  SimTime free = overlap ? SimTime{} : backwards[chunks.back()];
  for (const std::size_t chunk : chunks) {
    const SimTime tail = stages[chunk].reduce_tail;
    free =
        overlap ? std::max(complete[chunk] + tail, free + stages[chunk].reduce_total) : free + tail;
  }
  return free;
}

// Passes over fp32 values of an optimizer that runs as one PyTorch kernel each. All: weight decay 2
// and the clipped gradient 3 (norm, then scaled in place). SGD: update 3; its momentum 2 and 3.
// AdamW: first moment 2 and 3, second moment 2 and 3, root 2, division 2, epsilon 2, update 4.
constexpr std::array<int, 3> kEagerPassesByMoments = {8, 13, 25};

// Bytes of a parameter as it is stored and of its copy in the optimizer.
struct ParameterBytes {
  int stored = 0;
  int master = 0;  // 0: none beside the parameter
};

ParameterBytes parameter_bytes(const Plan& plan) {
  const Execution& execution = plan.execution;
  const int parameter = element_bytes(models::Element::Param, plan.precision);
  const bool whole = execution.fp32_parameters || parameter == 4;  // no copy beside the parameter
  return {whole ? 4 : parameter, execution.master_weights && !whole ? 4 : 0};
}

// Adam in one pass: gradient, master copy and moments are read, the latter two and the parameter
// written.
int bytes_of_fused_update(const Plan& plan) {
  const auto [stored, master] = parameter_bytes(plan);
  const int parameter = element_bytes(models::Element::Param, plan.precision);
  const int gradient = plan.execution.fp32_gradients ? 4 : parameter;
  const int state = plan.execution.optimizer_state_bytes + master;
  return gradient + 2 * state + (master > 0 ? stored : 2 * stored);
}

// Of the device with the largest gradient buffer.
ByteCount most_gradient_bytes(const Plan& plan, const std::vector<StageCost>& stages,
                              const std::vector<std::uint16_t>& device_of) {
  std::vector<ByteCount> bytes(static_cast<std::size_t>(plan.pp));
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    bytes[device_of[stage]] += stages[stage].states.gradients;
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

// A pass of its own that turns master copies into parameters reads them again; the fused update
// counts the parameter as written already.
int bytes_of_copy(const Plan& plan) {
  const auto [stored, master] = parameter_bytes(plan);
  const bool copies = plan.execution.copies_master && master > 0;
  return copies ? master + (plan.execution.eager_optimizer ? stored : 0) : 0;
}

// Moments of fewer bits have one kernel, as bitsandbytes' optimizers do.
int bytes_of_update(const Plan& plan) {
  const int states = plan.execution.optimizer_state_bytes;
  const auto moments = static_cast<std::size_t>(states / 4);
  const bool passes =
      plan.execution.eager_optimizer && states % 4 == 0 && moments < kEagerPassesByMoments.size();
  return passes ? kEagerPassesByMoments[moments] * 4 : bytes_of_fused_update(plan);
}

int bytes_per_update(const Plan& plan) { return bytes_of_update(plan) + bytes_of_copy(plan); }

// Updates on the host of the slowest device.
Seconds host_updates(const Plan& plan, const std::vector<StageCost>& stages,
                     const std::vector<std::vector<std::size_t>>& chunks) {
  const int blocks = static_cast<int>(plan.network.chain.size()) / plan.pp;
  Seconds slowest;
  for (const std::vector<std::size_t>& mine : chunks) {
    StateBytes states{};
    for (const std::size_t stage : mine) {
      states += stages[stage].states;
    }
    slowest = std::max(slowest,
                       host_update_time(plan, states.update, blocks, bytes_of_fused_update(plan)));
  }
  return slowest;
}

}  // namespace

bool updates_on_device(const Plan& plan) {
  return std::all_of(plan.blocks.begin(), plan.blocks.end(), [](const BlockRun& run) {
    return run.layout.offload.optimizer == Tier::Device;
  });
}

Seconds optimizer_time(const Plan& plan, const std::vector<StageCost>& stages,
                       const std::vector<std::uint16_t>& device_of, const BlockCosts& costs) {
  std::vector<std::int64_t> parameters(static_cast<std::size_t>(plan.pp), 0);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    parameters[device_of[stage]] += stages[stage].states.local_parameters;
  }
  return optimizer_time(plan, *std::max_element(parameters.begin(), parameters.end()),
                        most_gradient_bytes(plan, stages, device_of), costs);
}

Seconds optimizer_time(const Plan& plan, std::int64_t parameters, ByteCount gradient_buffer,
                       const BlockCosts& costs) {
  const Seconds time =
      costs.device().memory_bound(Bytes(static_cast<double>(parameters) * bytes_per_update(plan)),
                                  costmodel::MemoryKernel::Optimizer);
  const Bytes gradients(static_cast<double>(gradient_buffer.value()) *
                        plan.execution.gradient_passes);
  return costs.scaled(
      CostClass::MemoryBound,
      time + costs.device().memory_bound(gradients, costmodel::MemoryKernel::Elementwise));
}

Seconds update_time(const Plan& plan, const StageCost& stage, const BlockCosts& costs) {
  const std::vector<StageCost> alone = {stage};
  return optimizer_time(plan, alone, {0}, costs) +
         (plan.execution.delayed_update ? Seconds() : host_updates(plan, alone, {{0}}));
}

SimTime prediction_time(const Plan& plan, const StageCost& stage, const BlockCosts& costs) {
  const auto [stored, master] = parameter_bytes(plan);
  const int bytes = std::max(stored, master) + plan.execution.optimizer_state_bytes + stored;
  const Seconds pass =
      costs.device().memory_bound(Bytes(static_cast<double>(stage.states.local_parameters) * bytes),
                                  costmodel::MemoryKernel::Optimizer);
  return to_sim_time(costs.scaled(CostClass::MemoryBound, pass)) + stage.gather_total;
}

Seconds copies_time(const Plan& plan, const std::vector<StageCost>& stages,
                    const std::vector<std::uint16_t>& device_of, BlockCosts& costs) {
  if (!schedule_traits(plan).two_directions) {
    return Seconds();
  }
  std::vector<double> elements(static_cast<std::size_t>(plan.pp), 0.0);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    elements[device_of[stage]] += static_cast<double>(stages[stage].states.updated());
  }
  return copies_time(plan, *std::max_element(elements.begin(), elements.end()), costs);
}

Bytes gradients_of_copy(const Plan& plan, double parameters) {
  return Bytes(parameters * gradient_bytes(plan.execution, plan.precision));
}

Seconds copies_time(const Plan& plan, double parameters, const BlockCosts& costs) {
  const costmodel::GroupShape group = group_over(plan, {0, plan.pp - 1});
  return costs.scaled(group, costs.collectives().time(sim::CommKind::AllReduce,
                                                      gradients_of_copy(plan, parameters), group));
}

StepEnd close_step(const Plan& plan, const std::vector<StageContent>& contents,
                   const std::vector<StageCost>& stages,
                   const std::vector<std::uint16_t>& device_of, const sim::PipelineResult& pipeline,
                   BlockCosts& costs) {
  StepEnd end;
  std::vector<std::vector<std::size_t>> chunks(static_cast<std::size_t>(plan.pp));
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    chunks[device_of[stage]].push_back(stage);
  }
  const std::vector<SimTime>& backwards = pipeline.last_backward_end;
  std::vector<SimTime> complete = backwards;
  wait_for_uses(plan, device_of, contents, complete);
  std::vector<SimTime> ready;
  for (const std::vector<std::size_t>& mine : chunks) {
    ready.push_back(
        reduction_end(stages, mine, backwards, complete, plan.execution.overlap_grad_reduce));
  }
  // Frozen portions may run after the last gradient.
  end.gradients_ready = std::max(*std::max_element(ready.begin(), ready.end()), pipeline.makespan);
  const std::vector<int> holders = devices_with_table(plan, device_of, contents);
  end.tied_embedding = tied_embedding_time(plan, holders, costs);
  const SimTime tied = to_sim_time(end.tied_embedding);
  for (const int device : holders) {  // or its mirror image, whose copy is summed beside it
    const auto mirror = static_cast<std::size_t>(plan.pp - 1 - device);
    const SimTime both = schedule_traits(plan).two_directions ? ready[mirror] : SimTime{};
    const SimTime last = std::max(ready[static_cast<std::size_t>(device)], both);
    end.gradients_ready = std::max(end.gradients_ready, last + tied);
  }
  end.copies = copies_time(plan, stages, device_of, costs);
  end.gradients_ready += to_sim_time(end.copies);
  end.optimizer = optimizer_time(plan, stages, device_of, costs);
  const Seconds on_host = host_updates(plan, stages, chunks);
  if (!plan.execution.delayed_update) {
    end.optimizer += on_host;
  }
  if (!plan.execution.overlap_param_gather) {
    for (const std::vector<std::size_t>& mine : chunks) {
      SimTime gather;
      std::vector<StageContent> held;
      for (const std::size_t stage : mine) {
        gather += stages[stage].gather_total;
        if (plan.execution.broadcasts_parameters) {
          held.push_back(contents[stage]);
        }
      }
      gather += to_sim_time(broadcast_rounds(plan, held, costs));
      end.parameter_gather = std::max(end.parameter_gather, to_seconds(gather));
    }
  }
  end.iteration =
      end.gradients_ready + to_sim_time(end.optimizer) + to_sim_time(end.parameter_gather);
  if (plan.execution.delayed_update) {
    end.iteration = std::max(end.iteration, to_sim_time(on_host));
  }
  return end;
}

}  // namespace orrery::plan
