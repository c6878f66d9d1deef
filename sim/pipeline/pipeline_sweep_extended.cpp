// SPDX-License-Identifier: Apache-2.0
// The sweep for orders with chains, edges, joined passes or units of different length. Inputs come
// from sim/pipeline/pass_inputs.hpp; everything else is booked as for plain orders.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "sim/pipeline/pass_classes.hpp"
#include "sim/pipeline/pipeline_sweep.hpp"

namespace orrery::sim::detail {

// Where a pass takes another time or memory for other units, chains have other units or slices run
// in another order, no steady state is looked for, and there are no readers.
void PipelineSweep::find_readers(const PipelineOrder& order) {
  const bool same_units = std::all_of(units_.begin(), units_.end(),
                                      [&](auto units) { return units == micro_batches_; });
  if (!same_units || order.slices > 1 || !order.holds.empty() || costs_.units_differ()) {
    return;
  }
  std::vector<std::pair<std::size_t, Reader>> all;  // of a lane
  const auto add = [&](Lane from_lane, std::size_t from, Lane to_lane, std::size_t to, int shift) {
    const auto lane = [&](Lane of, std::size_t stage) {
      return static_cast<std::size_t>(of) * num_stages_ + stage;
    };
    all.push_back({lane(from_lane, from), {static_cast<std::uint32_t>(lane(to_lane, to)), shift}});
  };
  for (std::size_t s = 0; s < num_stages_; ++s) {
    if (!inputs_->is_last(s)) {
      add(Lane::Forward, s, Lane::Forward, s + 1, 0);
      add(Lane::Gradient, s + 1, Lane::Gradient, s, 0);
    }
  }
  for (const Edge& edge : order.edges) {
    const std::size_t waiting = static_cast<std::size_t>(edge.to_lane) * num_stages_ + edge.to;
    if (meetings_->of(waiting) == Meetings::kNone) {
      add(edge.from_lane, edge.from, edge.to_lane, edge.to, edge.shift);
    }
  }
  reader_begin_.assign(done_.size() + 1, 0);
  for (const auto& [lane, reader] : all) {
    ++reader_begin_[lane + 1];
  }
  std::partial_sum(reader_begin_.begin(), reader_begin_.end(), reader_begin_.begin());
  std::vector<std::uint32_t> next(reader_begin_.begin(), reader_begin_.end() - 1);
  readers_.resize(all.size());
  for (const auto& [lane, reader] : all) {
    readers_[next[lane]++] = reader;
  }
}

// Passes that start together at the device's position.
std::size_t PipelineSweep::block_length(const DeviceState& device) const {
  std::size_t length = 1;
  while (device.list[device.position + length - 1].joined &&
         device.position + length < device.length) {
    ++length;
  }
  return length;
}

// Inputs that were found are there for good: the search goes on where the last one ended.
bool PipelineSweep::has_missing_input(DeviceState& device, const Pass& pass, Demand& missing) {
  bool found = false;
  const auto set_missing = [&](std::size_t lane, std::uint32_t unit) {
    found = true;
    missing = {lane_device_[lane], static_cast<std::int32_t>(lane), unit};
  };
  const auto is_there = [&](const PassInput& input) {
    const std::size_t lane =
        static_cast<std::size_t>(input.lane) * num_stages_ + input.virtual_stage;
    if (!is_done(static_cast<std::int32_t>(lane), input.unit)) {
      set_missing(lane, input.unit);
    }
    return !found;
  };
  const int meeting = meetings_->of(static_cast<std::size_t>(pass_class(pass).lane));
  if (meeting == Meetings::kNone) {
    device.sources_done = inputs_->first_refused(pass, device.sources_done, is_there);
  } else if (inputs_->visit_neighbour(pass, is_there)) {
    const std::uint32_t unit = pass.micro_batch;
    const auto lane = meetings_->missing(meeting, unit, [&](std::size_t of) {
      return is_done(static_cast<std::int32_t>(of), unit);
    });
    if (lane) {
      set_missing(*lane, unit);
    }
  }
  return found;
}

std::int64_t PipelineSweep::hidden_in(const DeviceState& device, std::size_t position) const {
  return position == 0
             ? 0
             : hidden_by_joining(costs_, device.list[position - 1], device.list[position]).ps;
}

std::int64_t PipelineSweep::unit_duration(const PassClass& pass_class, const Pass& pass,
                                          std::uint32_t earlier) const {
  const auto at = [&](const std::vector<SimTime>& of_units) {
    const std::size_t index = pass.virtual_stage * std::size_t{micro_batches_} + pass.micro_batch;
    return of_units.empty() ? 0 : of_units[index].ps - pass_class.duration;
  };
  const std::int64_t usual = duration_of(pass_class, pass, earlier);
  switch (pass.kind) {
    case PassKind::Forward:
      return usual + at(costs_.unit_forward);
    case PassKind::InputGrad:
      return usual + at(costs_.unit_input_grad);
    case PassKind::WeightGrad:
      return usual + at(costs_.unit_weight_grad);
    case PassKind::Backward:
      return usual + at(costs_.unit_backward);
    default:
      return pass_class.duration;
  }
}

// Of the transfer from the pass before it in its chain.
std::int64_t PipelineSweep::latency_of(const PassClass& pass_class, const Pass& pass) const {
  const bool alike = costs_.unit_send_forward.empty() && costs_.unit_send_backward.empty();
  if (alike || pass_class.input_lane == kNoLane) {
    return pass_class.latency;
  }
  const std::size_t s = pass.virtual_stage;
  return pass.kind == PassKind::Forward ? costs_.send_forward_of(s - 1, pass.micro_batch).ps
                                        : costs_.send_backward_of(s, pass.micro_batch).ps;
}

void PipelineSweep::wait_for_inputs(const Pass& pass, Meetings::Arrival& start) {
  const PassClass& of_pass = pass_class(pass);
  const auto wait_until = [&start](std::int64_t at, std::int64_t end) {
    if (at > start.at) {
      start = {at, end};
    }
  };
  const auto wait_for = [&](const PassInput& input) {
    const std::size_t from =
        static_cast<std::size_t>(input.lane) * num_stages_ + input.virtual_stage;
    const std::int64_t end = end_[from * stride_ + input.unit];
    std::int64_t latency = latency_of(of_pass, pass);
    if (input.edge != kNeighbour) {
      latency = costs_.edge_latency.empty()
                    ? 0
                    : costs_.edge_latency[static_cast<std::size_t>(input.edge)].ps;
    }
    wait_until(end + latency, end);
    return true;
  };
  const auto lane = static_cast<std::size_t>(of_pass.lane);
  if (meetings_->of(lane) == Meetings::kNone) {
    inputs_->for_each(pass, wait_for);
    return;
  }
  (void)inputs_->visit_neighbour(pass, wait_for);
  const Meetings::Arrival last = meetings_->last_arrival(
      lane, pass.micro_batch,
      [&](std::size_t from) { return end_[from * stride_ + pass.micro_batch]; });
  wait_until(last.at, last.end);
}

void PipelineSweep::book_block(DeviceState& device, std::size_t length, std::int64_t start) {
  std::int64_t leaves = start;
  std::int64_t held = device.live_bytes;  // by all passes of the block until it ends
  for (std::size_t k = 0; k < length; ++k) {
    const Pass& pass = device.list[device.position + k];
    std::uint32_t earlier = 0;  // of the same lane in this block
    for (std::size_t i = 0; i < k; ++i) {
      earlier += pass_class(device.list[device.position + i]).lane == pass_class(pass).lane ? 1 : 0;
    }
    leaves +=
        unit_duration(pass_class(pass), pass, earlier) - hidden_in(device, device.position + k);
    held += pass_class(pass).acquired + pass_class(pass).workspace;
  }
  device.peak_bytes = std::max(device.peak_bytes, held);
  for (std::size_t k = 0; k < length; ++k) {
    const Pass& pass = device.list[device.position];
    const std::int64_t hidden = hidden_in(device, device.position);
    const std::int64_t end = start + unit_duration(pass_class(pass), pass) - hidden;
    device.hidden += hidden;
    book(device, pass_class(pass), pass, start, end, leaves);
    start = end;
  }
}

bool PipelineSweep::execute_block(DeviceState& device) {
  const std::size_t length = block_length(device);
  Meetings::Arrival start{device.free, 0};
  for (std::size_t k = 0; k < length; ++k) {
    const Pass& pass = device.list[device.position + k];
    ORRERY_CHECK(pass.micro_batch < micro_batches_, "unit of a pass beyond the last one");
    if (in_order_ && done_[static_cast<std::size_t>(pass_class(pass).lane)] != pass.micro_batch) {
      return false;
    }
    wait_for_inputs(pass, start);
  }
  if (start.at > device.free) {
    const Pass& pass = device.list[device.position];
    book_wait(device, pass_class(pass), pass, start.at, start.end);
  }
  book_block(device, length, start.at);
  return true;
}

void PipelineSweep::count_holds() {
  if (holds_.empty()) {
    return;
  }
  struct Change {
    std::int64_t when;
    bool acquires;
    std::int64_t bytes;
    int units;
    bool operator<(const Change& other) const {  // at one time, what ends first
      return when != other.when ? when < other.when : acquires < other.acquires;
    }
  };
  std::vector<std::vector<Change>> changes(devices_.size());
  const auto at = [&](const auto& times, std::int64_t lane, std::size_t unit) {
    return times[static_cast<std::size_t>(lane) * stride_ + unit];
  };
  const auto lane_number = [&](Lane lane, std::size_t stage) {
    return static_cast<std::int64_t>(static_cast<std::size_t>(lane) * num_stages_ + stage);
  };
  for (const Hold& hold : holds_) {
    const std::int64_t bytes = bytes_at(costs_.activation, hold.of);
    for (std::uint32_t unit = 0; unit < units_[hold.of]; ++unit) {
      const std::int64_t from = at(start_, lane_number(hold.from_lane, hold.from), unit);
      const std::int64_t to = at(end_, lane_number(hold.to_lane, hold.to), unit);
      changes[hold.device].push_back({from, true, bytes, 1});
      changes[hold.device].push_back({to, false, -bytes, -1});
    }
  }
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    DeviceState& device = devices_[d];
    for (const Pass& pass : std::span(device.list, device.length)) {
      const PassClass& of_pass = pass_class(pass);
      changes[d].push_back(
          {at(start_, of_pass.lane, pass.micro_batch), true, of_pass.workspace, 0});
      changes[d].push_back(
          {at(end_, of_pass.lane, pass.micro_batch), false, -of_pass.workspace, 0});
    }
    std::sort(changes[d].begin(), changes[d].end());
    device.peak_bytes = 0;
    for (const Change& change : changes[d]) {
      device.live_bytes += change.bytes;
      device.live_chunks += change.units;
      device.peak_bytes = std::max(device.peak_bytes, device.live_bytes);
      device.peak_chunks = std::max(device.peak_chunks, device.live_chunks);
    }
  }
}

bool PipelineSweep::run_extended_to(std::size_t first, std::size_t goal) {
  stack_.assign(1, {static_cast<std::uint32_t>(first), kNoLane, 0});
  devices_[first].demanded = true;
  while (!stack_.empty()) {
    const Demand demand = stack_.back();
    DeviceState& device = devices_[demand.device];
    if (demand.lane == kNoLane ? device.position >= goal
                               : is_done(demand.lane, demand.micro_batch)) {
      device.demanded = false;
      stack_.pop_back();
      continue;
    }
    ORRERY_CHECK(device.position < device.length, "a pass that others need is in no list");
    const std::size_t length = block_length(device);
    Demand missing{};
    bool waits = false;
    while (device.passes_ready < length && !waits) {
      const Pass& pass = device.list[device.position + device.passes_ready];
      ORRERY_CHECK(pass.kind <= PassKind::Optimizer && pass.virtual_stage < num_stages_,
                   "a pass of no virtual stage");
      waits = has_missing_input(device, pass, missing);
      if (!waits) {
        ++device.passes_ready;
        device.sources_done = 0;
      }
    }
    if (waits) {
      ORRERY_CHECK(!devices_[missing.device].demanded, "the pipeline order deadlocks");
      devices_[missing.device].demanded = true;
      stack_.push_back(missing);
    } else if (execute_block(device)) {
      device.passes_ready = 0;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace orrery::sim::detail
