// SPDX-License-Identifier: Apache-2.0
// Passes of a device in which a backward is cut in two, and of frozen encoders.
#include <algorithm>

#include "plan/replay/device_replay.hpp"

namespace orrery::plan {

namespace {

// Whole gradients of weights, which W makes and a reduction takes (ZeRO-2 and 3).
bool is_weight_gradient(const BlockMemory& memory, const MemoryEvent& event) {
  const auto& made = memory.weight_gradients;
  return event.bytes > 0 && std::find(made.begin(), made.end(), event.buffer) != made.end();
}

}  // namespace

void DeviceReplay::apply_cut(const BlockMemory& memory, std::vector<Buffer>& buffers,
                             std::set<Buffer>& for_weight_grads) {
  for (const MemoryEvent& event : memory.backward) {
    if (is_weight_gradient(memory, event) || keep(event)) {
      continue;
    }
    Buffer& block = buffers[static_cast<std::size_t>(event.buffer)];
    if (event.bytes > 0) {
      block = memory_.allocate(event.bytes, event.stream);
      continue;
    }
    const auto& read = memory.for_weight_grads;
    if (block >= 0 && std::find(read.begin(), read.end(), event.buffer) != read.end()) {
      for_weight_grads.insert(block);
    }
    if (!for_weight_grads.contains(block)) {
      memory_.release(block);
    }
    block = -1;
  }
}

void DeviceReplay::weight_grad(int stage, std::uint32_t micro_batch) {
  Live& live = live_[{stage, micro_batch}];
  const std::vector<Position>& positions = stages[stage].positions;
  for (std::size_t index = positions.size(); index-- > 0;) {
    if (positions[index].frozen) {
      continue;
    }
    const BlockMemory& memory = *at(stage, micro_batch, index).memory;
    for (const MemoryEvent& event : memory.backward) {
      if (is_weight_gradient(memory, event)) {
        live.buffers[index][static_cast<std::size_t>(event.buffer)] =
            memory_.allocate(event.bytes, event.stream);
      }
    }
    reduce(positions[index], memory, live.buffers[index]);
  }
  for (const Buffer buffer : live.for_weight_grads) {
    memory_.release(buffer);
  }
  live_.erase({stage, micro_batch});
}

void DeviceReplay::frozen_forward(int stage, std::uint32_t portion) {
  if ((portion + 1) % stages[stage].portions != 0) {
    return;
  }
  forward(stage, portion, false);
  Live& live = live_[{stage, portion}];
  features_.push_back(live.output);
  live_.erase({stage, portion});
}

}  // namespace orrery::plan
