// SPDX-License-Identifier: Apache-2.0
#include "plan/replay/device_replay.hpp"

#include <algorithm>
#include <utility>

namespace orrery::plan {

MemoryPeak DeviceReplay::run(const std::vector<sim::Pass>& passes) {
  for (const sim::Pass& pass : passes) {
    if (pass.kind == sim::PassKind::Recompute) {
      stages[pass.virtual_stage].recomputed = true;
    }
  }
  const auto peak = [&] {
    return MemoryPeak{ByteCount(memory_.peak_allocated()), ByteCount(memory_.peak_reserved()),
                      ByteCount()};
  };
  allocate_states();
  for (int iteration = 0; iteration < 2; ++iteration) {
    for (const sim::Pass& pass : passes) {
      if (stops_when_full && memory_.over_capacity()) {
        return peak();
      }
      run_pass(pass);
    }
    ended_.clear();
    release_held();
    finish_roots();
    release_all(used_features_);
    used_features_.swap(features_);
    step(iteration == 0);
    release_all(outputs_);
  }
  return peak();
}

void DeviceReplay::run_pass(const sim::Pass& pass) {
  switch (pass.kind) {
    case sim::PassKind::Forward:
      if (stages[pass.virtual_stage].portions > 0) {
        return frozen_forward(pass.virtual_stage, pass.micro_batch);
      }
      forward(pass.virtual_stage, pass.micro_batch, stages[pass.virtual_stage].recomputed);
      break;
    case sim::PassKind::Recompute:
      forward(pass.virtual_stage, pass.micro_batch, false);
      break;
    case sim::PassKind::Backward:
    case sim::PassKind::InputGrad:
      backward(pass.virtual_stage, pass.micro_batch, pass.kind == sim::PassKind::InputGrad);
      break;
    case sim::PassKind::WeightGrad:
      weight_grad(pass.virtual_stage, pass.micro_batch);
      break;
    default:
      break;
  }
}

void DeviceReplay::apply(const std::vector<MemoryEvent>& events, std::vector<Buffer>& buffers) {
  for (const MemoryEvent& event : events) {
    if (keep(event)) {
      continue;
    }
    Buffer& block = buffers[static_cast<std::size_t>(event.buffer)];
    if (event.bytes > 0) {
      block = memory_.allocate(event.bytes, event.stream);
    } else {
      if (block != received_) {
        memory_.release(block);
      }
      block = -1;
    }
  }
}

bool DeviceReplay::keep(const MemoryEvent& event) {
  if (event.buffer < 0 && kept_.insert({event.buffer, event.bytes}).second) {
    memory_.allocate(event.bytes);
  }
  return event.buffer < 0;
}

Buffer DeviceReplay::take(std::vector<Buffer>& buffers, std::int32_t index) {
  return index >= 0 ? buffers[static_cast<std::size_t>(index)] : -1;
}

Unit DeviceReplay::unit_of(int stage, std::uint32_t unit) const {
  if (!units.empty()) {
    return units[unit];
  }
  const auto slices = static_cast<std::uint32_t>(stages.at(stage).slices.size());
  const std::uint32_t slice = unit % slices;
  return {slice, unit - slice, slice + 1 == slices};
}

const SlicePosition& DeviceReplay::at(int stage, std::uint32_t unit, std::size_t position) const {
  return stages.at(stage).slices[unit_of(stage, unit).cost][position];
}

void DeviceReplay::begin_context_gradients(int stage, std::uint32_t unit, std::size_t position) {
  const Unit of = unit_of(stage, unit);
  if (!of.last) {
    return;
  }
  for (std::uint32_t earlier = of.first; earlier < unit; ++earlier) {
    const auto bytes = at(stage, earlier, position).context_gradients;
    if (bytes > 0) {  // shards of an output layer, which have none, may be done with the slice
      live_.at({stage, earlier}).context_gradients[position] = memory_.allocate(bytes);
    }
  }
}

std::vector<MemoryEvent> leaving_buffers(const BlockMemory& memory, const Offload& offload) {
  std::vector<MemoryEvent> live;
  if (memory.input >= 0) {
    live.push_back({memory.input, memory.boundary});
  }
  for (const MemoryEvent& event : memory.forward) {
    if (event.bytes > 0) {
      live.push_back(event);
    } else {
      std::erase_if(live, [&](const MemoryEvent& one) { return one.buffer == event.buffer; });
    }
  }
  std::erase_if(live, [&](const MemoryEvent& one) {
    const OperatorGroup group = memory.groups[static_cast<std::size_t>(one.buffer)];
    const auto& stay = memory.context;
    return one.buffer == memory.output ||
           std::find(stay.begin(), stay.end(), one.buffer) != stay.end() ||
           !(offload.activations_of.empty() || offload.activations_of.has(group));
  });
  double all = 0;
  for (const MemoryEvent& one : live) {
    all += static_cast<double>(one.bytes);
  }
  double taken = 0;
  std::erase_if(live, [&](const MemoryEvent& one) {
    const auto bytes = static_cast<double>(one.bytes);
    const bool stays = taken + bytes / 2 > offload.activations * all;
    taken += stays ? 0 : bytes;
    return stays;
  });
  return live;
}

void DeviceReplay::evict(const SlicePosition& part, std::vector<Buffer>& buffers) {
  for (const MemoryEvent& one : part.leaving) {
    Buffer& block = buffers[static_cast<std::size_t>(one.buffer)];
    memory_.release(block);
    block = -1;
  }
}

void DeviceReplay::restore(const SlicePosition& part, std::vector<Buffer>& buffers) {
  for (const MemoryEvent& one : part.leaving) {
    Buffer& block = buffers[static_cast<std::size_t>(one.buffer)];
    if (block < 0) {
      block = memory_.allocate(one.bytes);
    }
  }
}

void DeviceReplay::keep_input(const BlockMemory& memory, bool first, std::vector<Buffer>& buffers,
                              Buffer& input) {
  for (std::int32_t index = 0; index < memory.num_buffers; ++index) {
    Buffer& block = buffers[static_cast<std::size_t>(index)];
    if (index == memory.output) {
      continue;
    }
    if (first && index == memory.input) {
      input = std::exchange(block, -1);
    } else {
      memory_.release(block);
      block = -1;
    }
  }
}

void DeviceReplay::receive_carried(const BlockMemory& memory, Live& live) {
  if (memory.carried.taken && live.carried < 0) {
    live.carried = memory_.allocate(memory.carried.bytes.value());
  }
}

void DeviceReplay::make_carried(const BlockMemory& memory, Live& live) {
  const Carried& carried = memory.carried;
  if (carried.bytes.value() > 0 && !carried.taken && !carried.kept) {
    live.carried = memory_.allocate(carried.bytes.value());
  }
}

void DeviceReplay::end_carried(int stage, std::uint32_t micro_batch, bool runs_again) {
  const std::size_t count = stages[stage].positions.size();
  bool stays = runs_again && count > 0 && at(stage, micro_batch, 0).memory->carried.taken;
  for (std::size_t index = 0; !runs_again && index < count; ++index) {
    stays = stays || at(stage, micro_batch, index).memory->carried.read_again;
  }
  Buffer& carried = live_.at({stage, micro_batch}).carried;
  if (!stays) {
    memory_.release(carried);
    carried = -1;
  }
}

void DeviceReplay::forward(int stage, std::uint32_t micro_batch, bool runs_again) {
  leave(stage, micro_batch);
  const bool block_by_block = stages[stage].leaving == 0;
  const std::vector<Position>& positions = stages[stage].positions;
  const bool repeated = stages[stage].recomputed && !runs_again;
  Live& live = live_[{stage, micro_batch}];
  live.buffers.resize(positions.size());
  live.keys.assign(positions.size(), -1);
  live.context_gradients.assign(positions.size(), -1);
  gather_root();
  Buffer current = -1;
  for (std::size_t index = 0; index < positions.size(); ++index) {
    const SlicePosition& part = at(stage, micro_batch, index);
    const BlockMemory& memory = *part.memory;
    live.keys[index] = memory_.allocate(part.keys);
    std::vector<Buffer>& buffers = live.buffers[index];
    buffers.assign(static_cast<std::size_t>(memory.num_buffers), -1);
    gather(positions[index]);
    prefetch(positions, index, false);
    if (memory.input >= 0) {
      if (index == 0) {
        current = repeated ? std::exchange(live.input, -1) : -1;
        current = current < 0 ? memory_.allocate(memory.boundary) : current;  // received
      }
      buffers[static_cast<std::size_t>(memory.input)] = current;
      if (index == 0) {
        receive_carried(memory, live);
      }
    } else if (index > 0) {
      memory_.release(current);  // features of a frozen encoder, read like token ids
    }
    apply(memory.forward, buffers);
    if (repeated) {
      free_unit();  // the first forward counted it
    } else {
      end_forward(positions[index]);
    }
    current = take(buffers, memory.output);
    make_carried(memory, live);
    if (runs_again) {
      keep_input(memory, index == 0, buffers, live.input);
    }
    if (index > 0 && block_by_block) {
      evict(at(stage, micro_batch, index - 1), live.buffers[index - 1]);
    }
  }
  if (!positions.empty() && block_by_block) {
    evict(at(stage, micro_batch, positions.size() - 1), live.buffers.back());
  }
  end_carried(stage, micro_batch, runs_again);
  if ((facts_.keeps_stage_outputs && !runs_again) || stages[stage].portions > 0) {
    live.output = current;
  } else {
    memory_.release(current);
  }
}

// What left the device returns a block ahead of its use; parameters, too.
void DeviceReplay::begin_block_backward(int stage, std::uint32_t micro_batch, std::size_t index) {
  const std::vector<Position>& positions = stages[stage].positions;
  Live& live = live_.at({stage, micro_batch});
  begin_context_gradients(stage, micro_batch, index);
  restore(at(stage, micro_batch, index), live.buffers[index]);
  if (index > 0) {
    restore(at(stage, micro_batch, index - 1), live.buffers[index - 1]);
  }
  gather(positions[index]);
  columns_ = memory_.allocate(positions[index].columns);
  prefetch(positions, index, true);
}

void DeviceReplay::backward(int stage, std::uint32_t micro_batch, bool cut) {
  const std::vector<Position>& positions = stages[stage].positions;
  Live& live = live_[{stage, micro_batch}];
  begin_gradients();
  Buffer gradient = -1;
  Buffer of_carried = -1;  // its gradient, to which every block adds
  const auto begin_carried = [&](const BlockMemory& memory) {
    if (of_carried < 0 && memory.carried.trained) {
      of_carried = memory_.allocate(memory.carried.bytes.value());
    }
  };
  if (!positions.empty()) {
    const BlockMemory& last = *at(stage, micro_batch, positions.size() - 1).memory;
    begin_carried(last);  // received
    gradient = last.output_gradient >= 0 ? receive_gradient(last.boundary, cut) : -1;
  }
  for (std::size_t index = positions.size(); index-- > 0;) {
    const BlockMemory& memory = *at(stage, micro_batch, index).memory;
    if (positions[index].frozen) {
      break;  // the first ones of the chain
    }
    std::vector<Buffer>& buffers = live.buffers[index];
    begin_block_backward(stage, micro_batch, index);
    if (memory.output_gradient >= 0) {
      buffers[static_cast<std::size_t>(memory.output_gradient)] = gradient;
    }
    if (cut) {
      apply_cut(memory, buffers, live.for_weight_grads);
    } else {
      apply(memory.backward, buffers);
    }
    if (memory.logits >= 0) {
      outputs_.push_back(take(buffers, memory.logits));
    }
    begin_carried(memory);
    end_backward(positions[index]);
    memory_.release(live.keys[index]);
    memory_.release(live.context_gradients[index]);
    gradient = take(buffers, memory.input_gradient);
    if (gradient >= 0 && gradient == received_) {
      gradient = memory_.allocate(memory.boundary);  // a sum that is not made in place
    }
    if (memory.carried.trained && !memory.carried.taken) {
      memory_.release(std::exchange(of_carried, -1));  // its maker's backward has taken it
    }
    if (!cut) {
      reduce(positions[index], memory, buffers);
    }
  }
  memory_.release(of_carried);
  end_backward_pass(stage, micro_batch, gradient, cut);
}

// `gradient` is that of the stage's input.
void DeviceReplay::end_backward_pass(int stage, std::uint32_t micro_batch, Buffer gradient,
                                     bool cut) {
  Live& live = live_.at({stage, micro_batch});
  if (cut && live.carried >= 0) {
    live.for_weight_grads.insert(live.carried);
  } else {
    memory_.release(live.carried);
  }
  if (!live.for_weight_grads.contains(gradient)) {
    send_gradient(gradient, cut);
  }
  memory_.release(live.output);
  live.output = -1;
  if (!cut) {
    live_.erase({stage, micro_batch});
  }
  come_back(stage, micro_batch);
}

}  // namespace orrery::plan
