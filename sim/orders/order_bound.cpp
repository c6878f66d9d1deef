// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/order_bound.hpp"

#include <algorithm>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {

OrderBound::OrderBound(const std::vector<std::uint16_t>& device_of, const ScheduleParams& params,
                       bool splits_backward, std::int64_t ahead) {
  struct Device {
    std::int64_t head = -1;     // before its first pass; negative: no virtual stage yet
    std::int64_t other = -1;    // before one that is no forward of its first virtual stage
    std::int64_t forward = 0;   // of that stage
    std::int64_t gradient = 0;  // likewise
    std::int64_t tail = 0;      // gradients of the stages before, after its own last one
    std::int64_t work = 0;
    std::int64_t weight_grads = 0;
  };
  std::vector<Device> devices;
  const auto weight_grad_of = [&](std::size_t s) {
    return splits_backward ? params.times_of(s).weight_grad.ps : 0;
  };
  std::int64_t head = 0;
  std::int64_t tail = 0;
  for (std::size_t s = 0; s < device_of.size(); ++s) {
    const PassTimes& times = params.times_of(s);
    const std::int64_t gradient = (splits_backward ? times.input_grad : times.backward()).ps;
    if (s > 0 && device_of[s] != device_of[s - 1]) {
      head += params.times_of(s - 1).send.ps;
      tail += params.times_of(s - 1).send.ps;
    }
    devices.resize(std::max<std::size_t>(devices.size(), device_of[s] + std::size_t{1}));
    Device& device = devices[device_of[s]];
    if (device.head < 0) {
      device.head = head;
      device.tail = tail;
      device.forward = times.forward.ps;
      device.gradient = gradient;
    } else if (device.other < 0) {
      device.other = head;
    }
    const std::int64_t units = params.micro_batches;
    device.work += units * (times.forward.ps + gradient + weight_grad_of(s));
    device.weight_grads += units * weight_grad_of(s);
    head += times.forward.ps;
    tail += gradient;
  }
  for (const Device& device : devices) {
    // Cut weight gradients may all come after the last gradient, and one of virtual stage 0 does.
    least_.push_back(device.work + (splits_backward ? 0 : device.tail));
    const std::int64_t last = device.work - device.weight_grads + device.tail + weight_grad_of(0);
    const std::int64_t other =  // with one virtual stage its gradient
        device.other >= 0 ? device.other : head + tail - device.tail - device.gradient;
    const std::int64_t before =
        device.forward * std::min<std::int64_t>(ahead, params.micro_batches);
    const std::int64_t start = std::max(device.head, other - before);
    makespan_ = std::max(makespan_, SimTime{start + std::max(least_.back(), last)});
  }
}

std::vector<std::int64_t> OrderBound::idle_within(SimTime makespan) const {
  std::vector<std::int64_t> idle = least_;
  for (std::int64_t& of : idle) {
    of = makespan.ps - of;
  }
  return idle;
}

bool can_end_before(SimTime makespan, const Schedule& schedule, const ScheduleParams& params) {
  const auto ahead = static_cast<std::int64_t>(schedule.most_activations(params) * 2);  // chunks
  const OrderBound bound(v_placement(params.stages), params, true, ahead);
  return params.decides_all || bound.makespan() < makespan;
}

}  // namespace orrery::sim
