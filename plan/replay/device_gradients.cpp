// SPDX-License-Identifier: Apache-2.0
// Gradients of a device: of activations between stages, of parameters until they are reduced.
#include "base/math.hpp"
#include "plan/block/states.hpp"
#include "plan/replay/device_replay.hpp"

namespace orrery::plan {

namespace {

constexpr int kReduce = 2;

}  // namespace

// Variables of core/pipeline_parallel/schedules.py of Megatron-LM (output_tensor_grad,
// input_tensor_grad). With several chunks a device they belong to one backward
// (backward_step_helper).
Buffer DeviceReplay::receive_gradient(std::int64_t bytes, bool cut) {
  const Buffer gradient = memory_.allocate(bytes);
  if (facts_.held_gradients && !cut) {
    memory_.release(received_);
    received_ = gradient;
  }
  return gradient;
}

void DeviceReplay::send_gradient(Buffer gradient, bool cut) {
  if (!facts_.held_gradients || cut) {
    memory_.release(gradient);
    return;
  }
  memory_.release(sent_);
  sent_ = gradient;
  if (stages.size() > 1) {
    release_held();
  }
}

void DeviceReplay::release_held() {
  memory_.release(received_);
  memory_.release(sent_);
  received_ = sent_ = -1;
}

void DeviceReplay::begin_gradients() {
  if (facts_.weight_gradient == WeightGradient::Kept && gradients_.empty() && !any_reduced()) {
    gradients_ = allocate_whole([](const StateBytes& states) { return states.gradients; });
  }
  if (facts_.keeps_low_gradients && low_gradients_.empty()) {
    low_gradients_ =
        allocate_whole([](const StateBytes& states) { return states.parameters - states.frozen; });
  }
}

bool DeviceReplay::any_reduced() const {
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      if (position.reduced) {
        return true;
      }
    }
  }
  return false;
}

void DeviceReplay::reduce(const Position& position, const BlockMemory& memory,
                          std::vector<Buffer>& buffers) {
  std::vector<Buffer> gradients;
  for (const std::int32_t buffer : memory.weight_gradients) {
    gradients.push_back(buffers[static_cast<std::size_t>(buffer)]);
  }
  if (!position.reduced) {
    return;
  }
  if (in_root(position)) {
    root_gradients_.insert(root_gradients_.end(), gradients.begin(), gradients.end());
    root_elements_ += position.trained;
    root_sharded_ += position.states.gradients.value();
    return;
  }
  scatter(position.trained, position.states.gradients.value(), &position, gradients);
}

void DeviceReplay::scatter(std::int64_t whole, std::int64_t sharded, const Position* unit,
                           std::vector<Buffer>& gradients) {
  memory_.release(reducing_);
  const int bytes = plan_.execution.fp32_gradients ? 4 : parameter_bytes(plan_.precision);
  reducing_ = -1;
  if (bytes > parameter_bytes(plan_.precision) || facts_.gathers_into_copy) {
    reducing_ = memory_.allocate(whole * bytes);
    release_all(gradients);
  }
  if (plan_.execution.quantised_reduce) {
    exchange_quantised(whole, unit);
  }
  const Buffer shard = memory_.allocate(sharded, kReduce);
  if (facts_.frees_sharded_gradients && has_shard_.insert(unit).second) {
    gradients_.push_back(shard);
  } else {
    memory_.release(shard);  // added to the one that is kept
  }
  release_all(gradients);
}

// 4-bit gradients are sent and received inside the node; what is left after their sum, quantised
// again, between nodes (DeepSpeed runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce).
void DeviceReplay::exchange_quantised(std::int64_t whole, const Position* unit) {
  const int inside = unit == nullptr ? 1 : unit->ranks_inside;
  const std::int64_t bytes = ceil_div(whole, std::int64_t{2});
  const std::int64_t left = ceil_div(bytes, std::int64_t{inside});
  std::vector<Buffer> buffers = {memory_.allocate(bytes), memory_.allocate(bytes)};
  const Buffer sums = memory_.allocate(left);
  release_all(buffers);
  memory_.release(memory_.allocate(left));
  memory_.release(sums);
}

void DeviceReplay::finish_roots() {
  if (!root_gradients_.empty()) {
    scatter(root_elements_, root_sharded_, nullptr, root_gradients_);
  }
  root_elements_ = 0;
  root_sharded_ = 0;
  memory_.release(reducing_);
  memory_.release(root_);
  reducing_ = root_ = -1;
}

}  // namespace orrery::plan
