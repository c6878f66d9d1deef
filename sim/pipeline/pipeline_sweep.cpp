// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/pipeline_sweep.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace orrery::sim::detail {
namespace {

constexpr std::size_t kKinds = 6;       // Forward .. Optimizer
constexpr std::size_t kPlainLanes = 3;  // forward, gradient, weight gradient

bool takes_plain_path(const PipelineOrder& order, const PipelineCosts& costs) {
  return order.is_plain() && !costs.units_differ();
}

}  // namespace

PipelineSweep::PipelineSweep(const PipelineOrder& order, const PipelineCosts& costs, bool in_order,
                             bool record_spans)
    : costs_(costs),
      inputs_(takes_plain_path(order, costs) ? nullptr : new PassInputs(order)),
      num_stages_(static_cast<std::size_t>(order.num_virtual_stages)),
      lanes_(inputs_ == nullptr ? kPlainLanes : kNumLanes),
      stride_(static_cast<std::size_t>(order.micro_batches) + 8),  // lanes on different cache sets
      micro_batches_(static_cast<std::uint32_t>(order.micro_batches)),
      in_order_(in_order),
      record_spans_(record_spans),
      classes_(kKinds * num_stages_),
      consumer_(lanes_ * num_stages_, kNoLane),
      lane_latency_(lanes_ * num_stages_, 0),
      lane_device_(lanes_ * num_stages_, 0),
      done_(lanes_ * num_stages_, 0),
      waited_until_(lanes_ * num_stages_, 0),
      finals_(num_stages_, 0),
      units_(num_stages_, micro_batches_),
      last_backward_end_(num_stages_, 0),
      devices_(order.passes.size()),
      end_(new std::int64_t[lanes_ * num_stages_ * stride_]),
      holds_(order.holds),
      start_(order.holds.empty() ? 0 : lanes_ * num_stages_ * stride_, 0),
      spans_(record_spans ? order.passes.size() : 0) {
  if (!in_order) {
    const std::size_t read = inputs_ == nullptr ? 2 : lanes_;  // kinds of lane that others read
    std::fill_n(end_.get(), read * num_stages_ * stride_, kNotDone);
  }
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    devices_[d].list = order.passes[d].data();
    devices_[d].length = order.passes[d].size();
  }
  fill_classes(order, costs);
  if (inputs_ != nullptr) {
    meetings_ = std::make_unique<Meetings>(*inputs_, costs.edge_latency, done_.size());
  }
  if (inputs_ != nullptr && in_order) {
    find_readers(order);
  }
}

void PipelineSweep::fill_classes(const PipelineOrder& order, const PipelineCosts& costs) {
  const std::vector<bool> recomputed = recomputed_stages(order);
  const bool by_rule = order.holds.empty();
  for (std::size_t s = 0; s < num_stages_; ++s) {
    StageFacts stage;
    stage.index = s;
    stage.count = num_stages_;
    stage.first = inputs_ == nullptr ? s == 0 : inputs_->is_first(s);
    stage.last = inputs_ == nullptr ? s + 1 == num_stages_ : inputs_->is_last(s);
    stage.by_rule = by_rule;
    stage.counts = by_rule && (inputs_ == nullptr || inputs_->role(s) == Role::Layers);
    stage.kept = inputs_ == nullptr || !inputs_->forward_only(s);
    stage.recomputes = recomputed[s];
    units_[s] = inputs_ == nullptr ? micro_batches_ : inputs_->units(s);

    const auto put = [&](PassKind kind, const PassClass& pass_class) {
      classes_[static_cast<std::size_t>(kind) * num_stages_ + s] = pass_class;
    };
    const PassClass forward = forward_class(stage, costs);
    const BackwardClasses backward = backward_classes(stage, costs, forward.acquired);
    put(PassKind::Forward, forward);
    put(PassKind::InputGrad, backward.input_grad);
    put(PassKind::WeightGrad, backward.weight_grad);
    put(PassKind::Backward, backward.whole);
    put(PassKind::Recompute, recompute_class(stage, costs));
    put(PassKind::Optimizer, optimizer_class(stage, costs));
    join_lanes(stage.first, stage.last, s, costs);
    for (std::size_t direction = 0; direction < lanes_; ++direction) {
      lane_device_[direction * num_stages_ + s] = device_of(order, static_cast<Lane>(direction), s);
    }
    devices_[order.device_of[s]].forwards_left += units_[s];
  }
}

void PipelineSweep::join_lanes(bool first, bool last, std::size_t s, const PipelineCosts& costs) {
  const std::size_t n = num_stages_;
  const auto lane = static_cast<std::int32_t>(s);
  consumer_[s] = last ? kNoLane : lane + 1;
  lane_latency_[s] = last ? 0 : costs.send_forward[s].ps;
  consumer_[n + s] = first ? kNoLane : static_cast<std::int32_t>(n) + lane - 1;
  lane_latency_[n + s] = first ? 0 : costs.send_backward[s - 1].ps;
}

std::int64_t PipelineSweep::duration_of(const PassClass& pass_class, const Pass& pass,
                                        std::uint32_t earlier) const {
  const bool first = done_[static_cast<std::size_t>(pass_class.lane)] + earlier == 0;
  const bool last = finals_[pass.virtual_stage] + earlier + 1 == units_[pass.virtual_stage];
  return pass_class.duration + (first ? pass_class.first_extra : 0) +
         (last ? pass_class.last_extra : 0);
}

void PipelineSweep::book_wait(DeviceState& device, const PassClass& pass_class, const Pass& pass,
                              std::int64_t start, std::int64_t input_end) {
  waited_until_[static_cast<std::size_t>(pass_class.lane)] = pass.micro_batch + 1;
  if (device.position == 0) {
    device.first_start = start;
  } else {
    device.idle[static_cast<std::size_t>(device.phase)] += start - device.free;
    device.waiting += start - std::max(device.free, input_end);
  }
}

void PipelineSweep::book(DeviceState& device, const PassClass& pass_class, const Pass& pass,
                         std::int64_t start, std::int64_t end, std::int64_t leaves) {
  const auto lane = static_cast<std::size_t>(pass_class.lane);
  device.busy += end - start;
  device.free = end;
  ++device.position;
  end_[lane * stride_ + pass.micro_batch] = leaves;
  if (!start_.empty()) {
    start_[lane * stride_ + pass.micro_batch] = start;
  }
  ++done_[lane];

  device.live_bytes += pass_class.acquired;
  device.peak_bytes = std::max(device.peak_bytes, device.live_bytes + pass_class.workspace);
  device.live_bytes -= pass_class.released;
  device.live_chunks += pass_class.chunk_change;
  device.peak_chunks = std::max(device.peak_chunks, device.live_chunks);
  if (pass.kind == PassKind::Forward) {
    --device.forwards_left;
  } else if (pass_class.completes) {
    ++finals_[pass.virtual_stage];
    last_backward_end_[pass.virtual_stage] = leaves;
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
}

bool PipelineSweep::execute(DeviceState& device, const PassClass& pass_class, const Pass& pass) {
  const std::uint32_t j = pass.micro_batch;
  ORRERY_CHECK(j < micro_batches_, "micro-batch of a pass beyond the last one");
  if (in_order_ && done_[static_cast<std::size_t>(pass_class.lane)] != j) {
    return false;
  }
  std::int64_t input_end = 0;
  if (pass_class.input_lane != kNoLane) {
    input_end = end_[static_cast<std::size_t>(pass_class.input_lane) * stride_ + j];
  }
  const std::int64_t start = std::max(device.free, input_end + pass_class.latency);
  const std::int64_t end = start + duration_of(pass_class, pass);
  if (start > device.free) {
    book_wait(device, pass_class, pass, start, input_end);
  }
  book(device, pass_class, pass, start, end, end);
  return true;
}

bool PipelineSweep::run_to(std::size_t first, std::size_t goal) {
  if (!is_plain()) {
    return run_extended_to(first, goal);
  }
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

// A device that another one waits for goes on, past what is waited for, as far as it can.
bool PipelineSweep::run_times(std::size_t first) {
  stack_.assign(1, {static_cast<std::uint32_t>(first), kNoLane, 0});
  while (!stack_.empty()) {
    const Demand demand = stack_.back();
    DeviceState& device = devices_[demand.device];
    device.demanded = true;
    const Pass* pass = device.list + device.position;
    const Pass* const end = device.list + device.length;
    std::int64_t free = device.free;
    std::int64_t idle_left = device.idle_left;
    const PassClass* missing = nullptr;  // whose input is
    for (; pass != end; ++pass) {
      ORRERY_CHECK(pass->kind <= PassKind::Backward && pass->virtual_stage < num_stages_ &&
                       pass->micro_batch < micro_batches_,
                   "a pass of no virtual stage or micro-batch");
      const PassClass& of_pass = pass_class(*pass);
      std::int64_t input_end = 0;
      if (of_pass.input_lane != kNoLane) {
        input_end =
            end_[static_cast<std::size_t>(of_pass.input_lane) * stride_ + pass->micro_batch];
        if (input_end == kNotDone) {
          missing = &of_pass;
          break;
        }
      }
      const std::int64_t idle = std::max<std::int64_t>(input_end + of_pass.latency - free, 0);
      idle_left -= idle;
      free += idle + of_pass.duration;
      end_[static_cast<std::size_t>(of_pass.lane) * stride_ + pass->micro_batch] = free;
    }
    device.free = free;
    device.idle_left = idle_left;
    device.position = static_cast<std::size_t>(pass - device.list);
    if (idle_left <= 0) {
      return false;
    }
    if (demand.lane == kNoLane ? pass == end : is_done(demand.lane, demand.micro_batch)) {
      device.demanded = false;
      stack_.pop_back();
      continue;
    }
    ORRERY_CHECK(missing != nullptr, "a pass that others need is in no list");
    const std::uint32_t producer = lane_device_[static_cast<std::size_t>(missing->input_lane)];
    ORRERY_CHECK(!devices_[producer].demanded, "the pipeline order deadlocks");
    stack_.push_back({producer, missing->input_lane, pass->micro_batch});
  }
  return true;
}

std::optional<SimTime> PipelineSweep::makespan_within(
    const std::vector<std::int64_t>& idle_within) {
  ORRERY_CHECK(is_plain() && !in_order_, "only plain lists run for their times alone");
  ORRERY_CHECK(costs_.first_forward_extra.empty() && costs_.last_backward_extra.empty(),
               "added times are booked");
  SimTime makespan;
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    devices_[d].idle_left = idle_within[d];
  }
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    if (!run_times(d)) {
      return std::nullopt;
    }
    makespan = std::max(makespan, SimTime{devices_[d].free});
  }
  return makespan;
}

std::uint32_t PipelineSweep::first_unread(std::size_t lane) const {
  if (is_plain()) {
    return consumer_[lane] == kNoLane ? done_[lane]
                                      : done_[static_cast<std::size_t>(consumer_[lane])];
  }
  std::int64_t first = meetings_->fewest_done(lane, done_, evaluated_ + skipped_, done_[lane]);
  for (std::uint32_t k = reader_begin_[lane]; k < reader_begin_[lane + 1]; ++k) {
    first = std::min(first, std::int64_t{done_[readers_[k].lane]} - readers_[k].shift);
  }
  return static_cast<std::uint32_t>(std::max<std::int64_t>(first, 0));
}

bool PipelineSweep::is_read_by(std::size_t lane, const std::vector<bool>& lanes) const {
  if (is_plain()) {
    return consumer_[lane] != kNoLane && lanes[static_cast<std::size_t>(consumer_[lane])];
  }
  for (std::uint32_t k = reader_begin_[lane]; k < reader_begin_[lane + 1]; ++k) {
    if (lanes[readers_[k].lane]) {
      return true;
    }
  }
  bool read = false;
  meetings_->for_each_waiting(lane, [&](std::size_t waiting) { read = read || lanes[waiting]; });
  return read;
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
      const std::int64_t hidden = hidden_in(device, device.position + k);
      busy += (of_pass.duration - hidden) * periods;
      device.hidden += hidden * periods;
      device.live_bytes += (of_pass.acquired - of_pass.released) * periods;
      device.live_chunks += of_pass.chunk_change * periods;
      device.forwards_left -= pass.kind == PassKind::Forward ? periods : 0;
      done_[static_cast<std::size_t>(of_pass.lane)] += static_cast<std::uint32_t>(periods);
      finals_[pass.virtual_stage] += of_pass.completes ? static_cast<std::uint32_t>(periods) : 0;
    }
    device.position += skip.period[d] * static_cast<std::size_t>(periods);
    device.passes_ready = 0;
    device.sources_done = 0;
    device.free += skip.shift[d] * skip.windows;
    device.waiting += skip.waiting[d] * skip.windows;
    device.busy += busy;
    device.idle[static_cast<std::size_t>(device.phase)] += skip.shift[d] * skip.windows - busy;
  }
  skipped_ += periods;
  // Ends that passes after the skipped ones still read.
  for (std::size_t lane = 0; lane < done_.size(); ++lane) {
    std::int64_t* ends = end_.get() + lane * stride_;
    const std::uint32_t first = std::max(before[lane], first_unread(lane));
    for (std::uint32_t j = first; j < done_[lane]; ++j) {
      const std::uint32_t windows = (j - before[lane]) / skip.micro_batches + 1;
      ends[j] = ends[j - windows * skip.micro_batches] + skip.shift[lane_device_[lane]] * windows;
    }
  }
}

PipelineResult PipelineSweep::result() {
  count_holds();
  PipelineResult result;
  result.passes_evaluated = evaluated_;
  for (const DeviceState& device : devices_) {
    ORRERY_CHECK(device.position == device.length, "a device has not run its whole list");
    result.makespan = std::max(result.makespan, SimTime{device.free});
    result.passes_total += static_cast<std::int64_t>(device.length);
    result.devices.push_back({.first_start = {device.first_start},
                              .last_end = {device.free},
                              .busy = {device.busy},
                              .hidden = {device.hidden},
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
