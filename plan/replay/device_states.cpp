// SPDX-License-Identifier: Apache-2.0
// Parameters, optimizer state and the optimizer step of a device.
#include <algorithm>
#include <numeric>

#include "plan/replay/device_replay.hpp"

namespace orrery::plan {

std::vector<std::int64_t> Position::tensors() const {
  std::vector<std::int64_t> all = memory->weights;
  all.insert(all.end(), memory->experts.begin(), memory->experts.end());
  return all;
}

double Position::part(double amount) const {
  return trained > 0 ? amount / static_cast<double>(trained) : 0.0;
}

std::int64_t DeviceReplay::sum(ByteCount StateBytes::*part) const {
  std::int64_t total = 0;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      total += (position.states.*part).value();
    }
  }
  return total;
}

// Megatron-LM lays all parameters into one buffer, the last ones of the model first, and gives each
// rank an equal run of it (core/distributed/param_and_grad_buffer.py). Experts have a buffer and
// ranks of their own.
std::vector<std::int64_t> DeviceReplay::contiguous_elements(bool experts) const {
  std::vector<std::int64_t> whole;
  std::int64_t local = 0;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      const auto& part = experts ? position.memory->experts : position.memory->weights;
      whole.insert(whole.end(), part.begin(), part.end());
      local += experts ? position.local_experts
                       : position.states.local_parameters - position.local_experts;
    }
  }
  std::reverse(whole.begin(), whole.end());
  const std::int64_t all = std::accumulate(whole.begin(), whole.end(), std::int64_t{0});
  const auto begin = static_cast<std::int64_t>(place * static_cast<double>(all - local));
  std::vector<std::int64_t> result;
  std::int64_t at = 0;
  for (const std::int64_t elements : whole) {
    const std::int64_t low = std::max(at, begin);
    const std::int64_t high = std::min(at + elements, begin + local);
    if (high > low) {
      result.push_back(high - low);
    }
    at += elements;
  }
  return result;
}

bool DeviceReplay::cuts_buffer() const {
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      if (position.gathered || position.reduced) {
        return false;
      }
    }
  }
  return facts_.contiguous_shards && !flat_optimizer();
}

std::int64_t DeviceReplay::differing_ranks() const {
  std::int64_t all = 0;
  std::int64_t local = 0;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      all += position.trained - position.experts;
      local += position.states.local_parameters - position.local_experts;
    }
  }
  return cuts_buffer() && local > 0 ? std::max<std::int64_t>(1, all / local) : 1;
}

std::vector<std::int64_t> DeviceReplay::local_elements() const {
  std::vector<std::int64_t> result;
  if (cuts_buffer()) {
    result = contiguous_elements(false);
    const std::vector<std::int64_t> experts = contiguous_elements(true);
    result.insert(result.end(), experts.begin(), experts.end());
    return result;
  }
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      for (const std::int64_t elements : position.tensors()) {
        result.push_back(static_cast<std::int64_t>(
            static_cast<double>(elements) *
            position.part(static_cast<double>(position.states.local_parameters))));
      }
    }
  }
  return result;
}

std::vector<Buffer> DeviceReplay::allocate_local(int bytes, bool flat) {
  std::vector<Buffer> result;
  std::int64_t all = 0;
  for (const std::int64_t elements : local_elements()) {
    all += elements;
    if (!flat) {
      result.push_back(memory_.allocate(elements * bytes));
    }
  }
  if (flat) {
    result.push_back(memory_.allocate(all * bytes));
  }
  return result;
}

// Megatron-LM: a copy in the parameters' precision, of that one in fp32
// (core/optimizer/distrib_optimizer.py, clone().float()).
void DeviceReplay::allocate_master() {
  if (!cuts_buffer()) {
    allocate_local(4, flat_optimizer());
    return;
  }
  for (const std::int64_t elements : local_elements()) {
    const Buffer copy = memory_.allocate(elements * parameter_bytes(plan_.precision));
    memory_.allocate(elements * 4);
    memory_.release(copy);
  }
}

// Moments in fp32, and one tensor of what narrower ones take.
void DeviceReplay::allocate_moments() {
  const int bytes = plan_.execution.optimizer_state_bytes;
  std::vector<int> moments(static_cast<std::size_t>(bytes / 4), 4);
  if (bytes % 4 > 0) {
    moments.push_back(bytes % 4);
  }
  if (flat_optimizer()) {
    for (const int moment : moments) {
      allocate_local(moment, true);
    }
    return;
  }
  for (const std::int64_t elements : local_elements()) {  // parameter by parameter
    for (const int moment : moments) {
      memory_.allocate(elements * moment);
    }
  }
}

std::vector<Buffer> DeviceReplay::allocate_whole(ByteCount (*of)(const StateBytes&)) {
  std::vector<Buffer> result;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      const auto bytes = static_cast<double>(of(position.states).value());
      for (const std::int64_t elements : position.tensors()) {
        result.push_back(memory_.allocate(
            static_cast<std::int64_t>(static_cast<double>(elements) * position.part(bytes))));
      }
    }
  }
  return result;
}

void DeviceReplay::allocate_frozen() {
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      const auto all = static_cast<double>(position.whole - position.trained);
      const auto bytes = static_cast<double>(position.states.frozen.value());
      for (const std::int64_t elements : position.memory->frozen) {
        memory_.allocate(static_cast<std::int64_t>(static_cast<double>(elements) * (bytes / all)));
      }
    }
  }
}

// TransformerEngine keeps them weight by weight, from the first forward on.
void DeviceReplay::allocate_cast_weights() {
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      if (position.states.cast_weights.value() == 0) {
        continue;
      }
      const auto bytes = static_cast<double>(position.states.cast_weights.value());
      for (const std::vector<std::int64_t>& part : {position.tensors(), position.memory->frozen}) {
        for (const std::int64_t elements : part) {
          memory_.allocate(static_cast<std::int64_t>(static_cast<double>(elements) * bytes /
                                                     static_cast<double>(position.whole)));
        }
      }
    }
  }
}

// Copies of the parameters for micro-batches that began before the last updates.
void DeviceReplay::allocate_versions() {
  for (const auto& [index, stage] : stages) {
    for (int older = 1; older < stage.versions; ++older) {
      for (const Position& position : stage.positions) {
        memory_.allocate(position.states.held_parameters().value());
      }
    }
  }
}

void DeviceReplay::release_all(std::vector<Buffer>& blocks) {
  for (const Buffer block : blocks) {
    memory_.release(block);
  }
  blocks.clear();
}

void DeviceReplay::allocate_states() {
  for (int workspace = 0; workspace < facts_.product_workspaces; ++workspace) {
    memory_.allocate(workspace_bytes());
  }
  if (facts_.whole_at_start) {
    shard_parameters();
    return finish_states();
  }
  allocate_frozen();
  std::vector<Buffer> parameters = allocate_whole(
      [](const StateBytes& states) { return states.parameters - states.frozen - states.replaced; });
  // Frameworks that shard gradients flatten parameters on the host (microsoft/DeepSpeed
  // deepspeed/runtime/zero/stage_1_and_2.py) or unit by unit.
  if (facts_.copies_into_buffer && !any_reduced()) {
    memory_.allocate(sum(&StateBytes::parameters) - sum(&StateBytes::frozen) -
                     sum(&StateBytes::replaced));
    release_all(parameters);
  }
  finish_states();
}

std::int64_t DeviceReplay::reserved_by_states() {
  allocate_states();
  allocate_moments();
  return memory_.reserved();
}

void DeviceReplay::shard_parameters() {
  std::vector<std::vector<Buffer>> originals;
  const int bytes = parameter_bytes(plan_.precision);
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      originals.emplace_back();
      for (const std::vector<std::int64_t>& part : {position.tensors(), position.memory->frozen}) {
        for (const std::int64_t elements : part) {
          originals.back().push_back(memory_.allocate(elements * bytes));
        }
      }
    }
  }
  std::size_t unit = 0;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      const std::int64_t held = position.has_table ? 0 : position.table;
      const Buffer flat = memory_.allocate((position.whole - held) * bytes);
      release_all(originals[unit++]);
      memory_.allocate((position.states.parameters - position.states.replaced).value());
      memory_.release(flat);
    }
  }
}

void DeviceReplay::finish_states() {
  const bool kept = facts_.weight_gradient == WeightGradient::Kept;
  if (!kept && !facts_.frees_sharded_gradients) {
    memory_.allocate(sum(&StateBytes::gradients));
  }
  if (has_master()) {
    allocate_master();
  }
  allocate_cast_weights();
  allocate_versions();
}

bool DeviceReplay::has_master() const {
  return plan_.execution.master_weights && !plan_.execution.fp32_parameters &&
         parameter_bytes(plan_.precision) < 4;
}

bool DeviceReplay::flat_optimizer() const {
  return facts_.step == OptimizerStep::FlatThenAdam || facts_.step == OptimizerStep::HalfToFloat;
}

std::int64_t DeviceReplay::workspace_bytes() const {
  return plan_.cluster.gpu.compute_capability >= 9.0 ? std::int64_t{32} << 20
                                                     : (std::int64_t{8} << 20) + (128 << 10);
}

void DeviceReplay::step(bool first) {
  std::vector<Buffer> copies;
  std::vector<Buffer> temporaries;
  const bool flat = flat_optimizer();
  if (facts_.bucket_elements > 0) {
    memory_.release(memory_.allocate(facts_.bucket_elements * parameter_bytes(plan_.precision)));
  }
  switch (facts_.step) {
    case OptimizerStep::Fused:
    case OptimizerStep::Foreach:
      break;
    case OptimizerStep::HalfToFloat:
      temporaries = allocate_local(parameter_bytes(plan_.precision), true);
      copies = allocate_local(4, true);
      release_all(temporaries);
      break;
    case OptimizerStep::FlatThenAdam:
      copies = allocate_local(4, false);  // for the norm
      release_all(copies);
      temporaries = allocate_local(parameter_bytes(plan_.precision), true);
      release_all(gradients_);
      copies = allocate_local(4, true);
      release_all(temporaries);
      break;
    case OptimizerStep::FloatAndAdam:
      copies = allocate_local(4, false);
      release_all(copies);
      copies = allocate_local(4, false);
      break;
  }
  if (first) {
    allocate_moments();
  }
  const bool two =
      facts_.step == OptimizerStep::FlatThenAdam || facts_.step == OptimizerStep::FloatAndAdam;
  std::vector<Buffer> roots;
  if (two || facts_.step == OptimizerStep::Foreach) {
    roots = allocate_local(4, flat);
  }
  if (two) {
    temporaries = allocate_local(4, flat);
  }
  release_all(roots);
  release_all(temporaries);
  release_all(copies);
  release_all(gradients_);
  has_shard_.clear();
}

}  // namespace orrery::plan
