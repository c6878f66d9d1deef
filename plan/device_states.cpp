// SPDX-License-Identifier: Apache-2.0
// Parameters, optimizer state and the optimizer step of a device.
#include <algorithm>

#include "plan/device_replay.hpp"
#include "plan/kernels.hpp"

namespace orrery::plan {

namespace {

int parameter_bytes(const Plan& plan) {
  return element_bytes(models::Element::Param, plan.precision);
}

}  // namespace

std::int64_t DeviceReplay::sum(ByteCount StateBytes::*part) const {
  std::int64_t total = 0;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      total += (position.states.*part).value();
    }
  }
  return total;
}

std::vector<Buffer> DeviceReplay::allocate_local(int bytes, bool flat) {
  std::vector<Buffer> result;
  std::int64_t all = 0;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      const double share = position.whole > 0
                               ? static_cast<double>(position.states.local_parameters) /
                                     static_cast<double>(position.whole)
                               : 0.0;
      for (const std::int64_t elements : position.memory->weights) {
        const auto local = static_cast<std::int64_t>(static_cast<double>(elements) * share);
        all += local;
        if (!flat) {
          result.push_back(memory_.allocate(local * bytes));
        }
      }
    }
  }
  if (flat) {
    result.push_back(memory_.allocate(all * bytes));
  }
  return result;
}

std::vector<Buffer> DeviceReplay::allocate_whole(ByteCount StateBytes::*part) {
  std::vector<Buffer> result;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      const double bytes = static_cast<double>((position.states.*part).value());
      for (const std::int64_t elements : position.memory->weights) {
        const double share =
            position.whole > 0 ? static_cast<double>(elements) / static_cast<double>(position.whole)
                               : 0.0;
        result.push_back(memory_.allocate(static_cast<std::int64_t>(bytes * share)));
      }
    }
  }
  return result;
}

void DeviceReplay::release_all(std::vector<Buffer>& blocks) {
  for (const Buffer block : blocks) {
    memory_.release(block);
  }
  blocks.clear();
}

void DeviceReplay::allocate_states() {
  memory_.allocate(workspace_bytes());
  if (facts_.whole_at_start) {
    shard_parameters();
    return finish_states();
  }
  std::vector<Buffer> parameters = allocate_whole(&StateBytes::parameters);
  // Frameworks that shard gradients flatten parameters on the host (microsoft/DeepSpeed
  // deepspeed/runtime/zero/stage_1_and_2.py) or unit by unit.
  if (facts_.copies_into_buffer && !any_reduced()) {
    memory_.allocate(sum(&StateBytes::parameters));
    release_all(parameters);
  }
  finish_states();
}

void DeviceReplay::shard_parameters() {
  std::vector<std::vector<Buffer>> originals;
  const int bytes = parameter_bytes(plan_);
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      originals.emplace_back();
      for (const std::int64_t elements : position.memory->weights) {
        originals.back().push_back(memory_.allocate(elements * bytes));
      }
    }
  }
  std::size_t unit = 0;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      const Buffer flat = memory_.allocate(position.whole * bytes);
      release_all(originals[unit++]);
      memory_.allocate(position.states.parameters.value());
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
    allocate_local(4, flat_optimizer());
  }
  if (facts_.weight_gradient == WeightGradient::Cached) {
    std::vector<std::int64_t> shapes;
    for (const auto& [index, stage] : stages) {
      for (const Position& position : stage.positions) {
        shapes.insert(shapes.end(), position.memory->placeholders.begin(),
                      position.memory->placeholders.end());
      }
    }
    std::sort(shapes.begin(), shapes.end());
    shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
    placeholders_ = std::move(shapes);
  }
}

bool DeviceReplay::has_master() const {
  return plan_.execution.master_weights && !plan_.execution.fp32_parameters &&
         parameter_bytes(plan_) < 4;
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
    memory_.release(memory_.allocate(facts_.bucket_elements * parameter_bytes(plan_)));
  }
  switch (facts_.step) {
    case OptimizerStep::Fused:
    case OptimizerStep::Foreach:
      break;
    case OptimizerStep::HalfToFloat:
      temporaries = allocate_local(parameter_bytes(plan_), true);
      copies = allocate_local(4, true);
      release_all(temporaries);
      break;
    case OptimizerStep::FlatThenAdam:
      copies = allocate_local(4, false);  // for the norm
      release_all(copies);
      temporaries = allocate_local(parameter_bytes(plan_), true);
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
    for (int moment = 0; moment < plan_.execution.optimizer_state_bytes / 4; ++moment) {
      allocate_local(4, flat);
    }
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
