// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline_sweep.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace orrery::sim::detail {
namespace {

constexpr std::size_t kKinds = 4;  // Forward, InputGrad, WeightGrad, Backward
constexpr std::size_t kLanes = 3;  // forward, gradient, weight gradient

std::int64_t time_at(const std::vector<SimTime>& times, std::size_t s) {
  return times.empty() ? 0 : times[s].ps;
}

std::int64_t bytes_at(const std::vector<ByteCount>& bytes, std::size_t s) {
  return bytes.empty() ? 0 : bytes[s].value();
}

}  // namespace

PipelineSweep::PipelineSweep(const PipelineOrder& order, const PipelineCosts& costs, bool in_order,
                             bool record_spans)
    : num_stages_(static_cast<std::size_t>(order.num_virtual_stages)),
      stride_(static_cast<std::size_t>(order.micro_batches) + 8),  // lanes on different cache sets
      micro_batches_(static_cast<std::uint32_t>(order.micro_batches)),
      in_order_(in_order),
      record_spans_(record_spans),
      classes_(kKinds * num_stages_),
      consumer_(kLanes * num_stages_, kNoLane),
      lane_latency_(kLanes * num_stages_, 0),
      lane_device_(kLanes * num_stages_, 0),
      done_(kLanes * num_stages_, 0),
      waited_until_(kLanes * num_stages_, 0),
      finals_(num_stages_, 0),
      last_backward_end_(num_stages_, 0),
      devices_(order.passes.size()),
      end_(new std::int64_t[kLanes * num_stages_ * stride_]),
      spans_(record_spans ? order.passes.size() : 0) {
  if (!in_order) {
    std::fill_n(end_.get(), kLanes * num_stages_ * stride_, kNotDone);
  }
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    devices_[d].list = order.passes[d].data();
    devices_[d].length = order.passes[d].size();
  }
  fill_classes(order, costs);
}

void PipelineSweep::fill_classes(const PipelineOrder& order, const PipelineCosts& costs) {
  const std::size_t n = num_stages_;
  for (std::size_t s = 0; s < n; ++s) {
    const auto lane = static_cast<std::int32_t>(s);
    const auto stages = static_cast<std::int32_t>(n);
    PassClass forward;
    forward.duration = costs.forward[s].ps;
    forward.first_extra = time_at(costs.first_forward_extra, s);
    forward.latency = s > 0 ? costs.send_forward[s - 1].ps : 0;
    forward.acquired = bytes_at(costs.activation, s);
    forward.workspace = bytes_at(costs.forward_workspace, s);
    forward.lane = lane;
    forward.input_lane = s > 0 ? lane - 1 : kNoLane;
    forward.chunk_change = 1;

    PassClass input_grad;
    input_grad.duration = time_at(costs.input_grad, s);
    input_grad.latency = s + 1 < n ? costs.send_backward[s].ps : 0;
    input_grad.workspace = bytes_at(costs.backward_workspace, s);
    input_grad.lane = stages + lane;
    input_grad.input_lane = s + 1 < n ? stages + lane + 1 : kNoLane;

    PassClass backward = input_grad;
    backward.duration = time_at(costs.backward, s);
    backward.last_extra = time_at(costs.last_backward_extra, s);
    backward.released = forward.acquired;
    backward.chunk_change = -1;

    PassClass weight_grad = backward;
    weight_grad.duration = time_at(costs.weight_grad, s);
    weight_grad.latency = 0;
    weight_grad.lane = 2 * stages + lane;
    weight_grad.input_lane = kNoLane;

    classes_[static_cast<std::size_t>(PassKind::Forward) * n + s] = forward;
    classes_[static_cast<std::size_t>(PassKind::InputGrad) * n + s] = input_grad;
    classes_[static_cast<std::size_t>(PassKind::WeightGrad) * n + s] = weight_grad;
    classes_[static_cast<std::size_t>(PassKind::Backward) * n + s] = backward;

    consumer_[s] = s + 1 < n ? lane + 1 : kNoLane;
    lane_latency_[s] = s + 1 < n ? costs.send_forward[s].ps : 0;
    consumer_[n + s] = s > 0 ? stages + lane - 1 : kNoLane;
    lane_latency_[n + s] = s > 0 ? costs.send_backward[s - 1].ps : 0;
    for (std::size_t direction = 0; direction < kLanes; ++direction) {
      lane_device_[direction * n + s] = order.device_of[s];
    }
    devices_[order.device_of[s]].forwards_left += order.micro_batches;
  }
}

std::int64_t PipelineSweep::duration_of(const PassClass& pass_class, const Pass& pass) const {
  const bool first = done_[static_cast<std::size_t>(pass_class.lane)] == 0;
  const bool last = finals_[pass.virtual_stage] + 1 == micro_batches_;
  return pass_class.duration + (first ? pass_class.first_extra : 0) +
         (last ? pass_class.last_extra : 0);
}

bool PipelineSweep::execute(DeviceState& device, const PassClass& pass_class, const Pass& pass) {
  const auto lane = static_cast<std::size_t>(pass_class.lane);
  const std::uint32_t j = pass.micro_batch;
  ORRERY_CHECK(j < micro_batches_, "micro-batch of a pass beyond the last one");
  if (in_order_ && done_[lane] != j) {
    return false;
  }
  std::int64_t input_end = 0;
  if (pass_class.input_lane != kNoLane) {
    input_end = end_[static_cast<std::size_t>(pass_class.input_lane) * stride_ + j];
  }
  const std::int64_t start = std::max(device.free, input_end + pass_class.latency);
  const std::int64_t end = start + duration_of(pass_class, pass);

  if (start > device.free) {
    waited_until_[lane] = j + 1;
    if (device.position == 0) {
      device.first_start = start;
    } else {
      device.idle[static_cast<std::size_t>(device.phase)] += start - device.free;
      device.waiting += start - std::max(device.free, input_end);
    }
  }
  device.busy += end - start;
  device.free = end;
  ++device.position;
  end_[lane * stride_ + j] = end;
  ++done_[lane];

  device.live_bytes += pass_class.acquired;
  device.peak_bytes = std::max(device.peak_bytes, device.live_bytes + pass_class.workspace);
  device.live_bytes -= pass_class.released;
  device.live_chunks += pass_class.chunk_change;
  device.peak_chunks = std::max(device.peak_chunks, device.live_chunks);
  if (pass.kind == PassKind::Forward) {
    --device.forwards_left;
  } else if (pass_class.chunk_change < 0) {
    ++finals_[pass.virtual_stage];
    last_backward_end_[pass.virtual_stage] = end;
  }
  if (device.forwards_left == 0 && device.phase == Phase::Steady) {
    device.phase = Phase::CoolDown;
  }
  if (device.phase == Phase::WarmUp && pass.kind != PassKind::Forward) {
    device.phase = device.forwards_left == 0 ? Phase::CoolDown : Phase::Steady;
  }
  ++evaluated_;
  if (record_spans_) {
    spans_[static_cast<std::size_t>(&device - devices_.data())].push_back({pass, {start}, {end}});
  }
  return true;
}

bool PipelineSweep::run_to(std::size_t first, std::size_t goal) {
  stack_.assign(1, {static_cast<std::uint32_t>(first), kNoLane, 0});
  devices_[first].demanded = true;
  while (!stack_.empty()) {
    const Demand demand = stack_.back();
    DeviceState& device = devices_[demand.device];
    while (true) {
      if (demand.lane == kNoLane ? device.position >= goal
                                 : is_done(demand.lane, demand.micro_batch)) {
        device.demanded = false;
        stack_.pop_back();
        break;
      }
      ORRERY_CHECK(device.position < device.length, "a pass that others need is in no list");
      const Pass& pass = device.list[device.position];
      ORRERY_CHECK(pass.kind <= PassKind::Backward && pass.virtual_stage < num_stages_,
                   "a pass of no virtual stage");
      const PassClass& of_pass = pass_class(pass);
      const std::int32_t input = of_pass.input_lane;
      if (input != kNoLane && !is_done(input, pass.micro_batch)) {
        const std::uint32_t producer = lane_device_[static_cast<std::size_t>(input)];
        ORRERY_CHECK(!devices_[producer].demanded, "the pipeline order deadlocks");
        devices_[producer].demanded = true;
        stack_.push_back({producer, input, pass.micro_batch});
        break;
      }
      if (!execute(device, of_pass, pass)) {
        return false;
      }
    }
  }
  return true;
}

bool PipelineSweep::run_to_end() {
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    if (!run_to(d, devices_[d].length)) {
      return false;
    }
  }
  return true;
}

void PipelineSweep::skip(const Skip& skip) {
  const std::int64_t periods = skip.windows * skip.periods;
  const std::vector<std::uint32_t> before = done_;
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    DeviceState& device = devices_[d];
    std::int64_t busy = 0;
    for (std::size_t k = 0; k < skip.period[d]; ++k) {
      const Pass& pass = device.list[device.position + k];
      const PassClass& of_pass = pass_class(pass);
      busy += of_pass.duration * periods;
      device.live_bytes += (of_pass.acquired - of_pass.released) * periods;
      device.live_chunks += of_pass.chunk_change * periods;
      device.forwards_left -= pass.kind == PassKind::Forward ? periods : 0;
      done_[static_cast<std::size_t>(of_pass.lane)] += static_cast<std::uint32_t>(periods);
      finals_[pass.virtual_stage] +=
          of_pass.chunk_change < 0 ? static_cast<std::uint32_t>(periods) : 0;
    }
    device.position += skip.period[d] * static_cast<std::size_t>(periods);
    device.free += skip.shift[d] * skip.windows;
    device.waiting += skip.waiting[d] * skip.windows;
    device.busy += busy;
    device.idle[static_cast<std::size_t>(device.phase)] += skip.shift[d] * skip.windows - busy;
  }
  // Ends that passes after the skipped ones still read.
  for (std::size_t lane = 0; lane < done_.size(); ++lane) {
    if (consumer_[lane] == kNoLane) {
      continue;
    }
    std::int64_t* ends = end_.get() + lane * stride_;
    const std::uint32_t first =
        std::max(before[lane], done_[static_cast<std::size_t>(consumer_[lane])]);
    for (std::uint32_t j = first; j < done_[lane]; ++j) {
      const std::uint32_t windows = (j - before[lane]) / skip.micro_batches + 1;
      ends[j] = ends[j - windows * skip.micro_batches] + skip.shift[lane_device_[lane]] * windows;
    }
  }
}

PipelineResult PipelineSweep::result() {
  PipelineResult result;
  result.passes_evaluated = evaluated_;
  for (const DeviceState& device : devices_) {
    ORRERY_CHECK(device.position == device.length, "a device has not run its whole list");
    result.makespan = std::max(result.makespan, SimTime{device.free});
    result.passes_total += static_cast<std::int64_t>(device.length);
    result.devices.push_back({.first_start = {device.first_start},
                              .last_end = {device.free},
                              .busy = {device.busy},
                              .idle_warm_up = {device.idle[0]},
                              .idle_steady = {device.idle[1]},
                              .idle_cool_down = {device.idle[2]},
                              .waiting_for_transfer = {device.waiting},
                              .peak_activation = ByteCount(device.peak_bytes),
                              .peak_chunks = device.peak_chunks});
  }
  for (const std::int64_t end : last_backward_end_) {
    result.last_backward_end.push_back({end});
  }
  result.spans = std::move(spans_);
  return result;
}

}  // namespace orrery::sim::detail
