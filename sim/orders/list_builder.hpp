// SPDX-License-Identifier: Apache-2.0
// Makes lists by deciding pass after pass: it keeps the time, the memory and what is ready, so that
// a schedule only says what comes next. Dependencies come from sim/pipeline/pass_inputs.hpp;
// durations and memory from ScheduleParams. Passes of a lane are taken in the order of their units
// (backwards of sliced micro-batches in the order of backward_unit). Deterministic; O(inputs) per
// pass.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {

// Times per virtual stage: those given, if there is one for each, or those of a device's share by
// the order's parts.
ScheduleParams with_stage_times(const PipelineOrder& order, const ScheduleParams& params);

// As lane_of, of the kinds that lists are made of; this runs for every look at a pass, and
// branches would be mispredicted.
inline Lane lane_in_lists(PassKind kind) {
  constexpr std::array<Lane, 4> kLanes = {Lane::Forward, Lane::Gradient, Lane::WeightGrad,
                                          Lane::Gradient};
  static_assert(static_cast<int>(PassKind::Forward) == 0 &&
                static_cast<int>(PassKind::WeightGrad) == 2 &&
                static_cast<int>(PassKind::Backward) == 3);
  return kLanes[static_cast<std::size_t>(kind)];
}

class ListBuilder {
 public:
  // `Next`: it is asked and told only about the next passes of lanes, by put_next(); without slices
  // and edges it then touches no more memory than it needs for those, as a run that may end early.
  enum class Asks : std::uint8_t { Any, Next };
  // `skeleton`: placement, chains and edges, no passes.
  ListBuilder(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
              Asks asks = Asks::Any);

  // Lanes are numbered virtual stage after virtual stage.
  static constexpr std::size_t kLanes = 3;  // forwards, gradients, weight gradients
  static std::size_t number(Lane lane, int stage) {
    return kLanes * index(stage) + static_cast<std::size_t>(lane);
  }
  // Passes of the lane so far, and the next one; its unit is done(lane, stage).
  int done(std::size_t lane) const { return lanes_[lane].done(); }
  int done(Lane lane, int stage) const { return done(number(lane, stage)); }
  bool has_passes(std::size_t lane) const { return lanes_[lane].units > 0; }
  int units(int stage) const { return static_cast<int>(inputs_.units(index(stage))); }
  Pass next(Lane lane, int stage) const { return pass_of(lane, stage, done(lane, stage)); }
  bool equal_units() const { return equal_units_; }  // of all chains

  // When the inputs of a pass arrive, in time units of the parameters; nothing while one is not
  // decided. The last of its chain's forwards must be over before its gradient, too.
  std::optional<std::int64_t> arrival(const Pass& pass) const {
    const std::int64_t at = arrival_or_never(pass);
    return at == kNever ? std::nullopt : std::optional(at);
  }
  // kNever where there is nothing yet.
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t arrival_or_never(const Pass& pass) const {
    const LaneState& of = lanes_[number(lane_in_lists(pass.kind), pass.virtual_stage)];
    const std::int64_t at = arrival_in_chain(of, pass.micro_batch);
    return of.has_edges && at != kNever ? arrival_over_edges(pass, at) : at;
  }
  // Of the next pass of a lane; kNever also where there is none.
  std::int64_t next_arrival(Lane lane, int stage) const {
    return next_arrival(number(lane, stage));
  }
  std::int64_t next_arrival(std::size_t lane) const {
    const LaneState& of = lanes_[lane];
    if (of.next.micro_batch == of.units) {
      return kNever;
    }
    const std::int64_t at = arrival_in_chain(of, of.next.micro_batch);
    return of.has_edges && at != kNever ? next_arrival_over_edges(lane, at) : at;
  }
  std::int64_t free(int device) const { return devices_[index(device)].free; }
  std::int64_t end_of(Lane lane, int stage, int unit) const {
    return end_[lanes_[number(lane, stage)].row + index(unit)];
  }
  std::int64_t duration(const Pass& pass) const {
    return facts_[pass.virtual_stage].duration[static_cast<std::size_t>(pass.kind)];
  }
  void put(const Pass& pass) {
    const std::optional<std::int64_t> ready = arrival(pass);
    ORRERY_CHECK(ready.has_value(), "a pass before its inputs");
    put(pass, std::max(devices_[order_.device_of[pass.virtual_stage]].free, *ready));
  }
  // The same where it is known that the inputs are there, at the latest when the pass starts.
  void put(const Pass& pass, std::int64_t start) {
    LaneState& lane = lanes_[number(lane_in_lists(pass.kind), pass.virtual_stage)];
    const std::int64_t end = run(lane.device, start, lane.duration, lane.memory);
    end_[lane.row + pass.micro_batch] = end;
    ++lane.next.micro_batch;
    order_.passes[lane.device].push_back(pass);
  }
  // The next pass of a lane likewise; when it ends.
  std::int64_t put_next(std::size_t lane, std::int64_t start) {
    return put_next(lane, lanes_[lane].device, start);
  }
  // The same where the caller knows the device of the lane.
  std::int64_t put_next(std::size_t lane, std::size_t device, std::int64_t start) {
    LaneState& of = lanes_[lane];
    const std::int64_t end = run(device, start, of.duration, of.memory);
    order_.passes[device].push_back(of.next);
    end_[of.row + of.next.micro_batch++] = end;
    end_[of.row + of.next.micro_batch] = -1;
    return end;
  }

  // How long what a lane waits for travels from the virtual stage beside its own.
  std::int64_t send_to(std::size_t lane) const { return lanes_[lane].send; }
  // How long after its start a pass reaches another device at the earliest; kNever: none does.
  std::int64_t soonest_reach() const;
  // The same without the edges.
  std::int64_t soonest_reach_in_chains() const;

  // Idle time of a device since its first pass, the largest of all, and the largest span.
  std::int64_t bubble(int device) const { return devices_[index(device)].bubble; }
  std::int64_t max_bubble() const { return max_bubble_; }
  std::int64_t longest_span() const;

  // Live activations in units of params.activation, and what a pass adds at its start (forwards) or
  // end (gradients).
  std::int64_t memory(int device) const { return devices_[index(device)].memory; }
  std::int64_t memory_change(const Pass& pass) const {
    return facts_[pass.virtual_stage].memory[static_cast<std::size_t>(pass.kind)];
  }

  // What a forward of the stage adds.
  std::int64_t activation(int stage) const {
    return facts_[index(stage)].memory[static_cast<std::size_t>(PassKind::Forward)];
  }

  const std::vector<int>& stages_on(int device) const { return stages_on_[index(device)]; }

  bool splits_backward() const { return splits_backward_; }
  const PipelineOrder& order() const { return order_; }
  const PassInputs& inputs() const { return inputs_; }
  // To the beginning, in the memory it has.
  void restart();
  PipelineOrder take() { return std::move(order_); }

 private:
  friend class ListRepetition;
  static constexpr std::size_t kKinds = static_cast<std::size_t>(PassKind::Backward) + 1;
  struct Facts {  // of a virtual stage
    std::array<std::int64_t, kKinds> duration{};
    std::array<std::int64_t, kKinds> memory{};
    std::int64_t send = 0;        // along an edge
    std::int64_t send_after = 0;  // from the one after it in the chain, and to it
  };

  struct Device {
    std::int64_t free = 0;
    std::int64_t first_start = -1;
    std::int64_t bubble = 0;
    std::int64_t memory = 0;
  };

  static std::size_t index(int at) { return static_cast<std::size_t>(at); }

  // Where its rows of end_ begin: its own, and what its passes wait for, of the own virtual stage
  // and of the one beside it in the chain, each perhaps the last row, of nothing.
  struct LaneState {
    std::size_t row = 0;
    std::size_t own = 0;
    std::size_t neighbour = 0;
    std::int64_t send = 0;
    std::int64_t duration = 0;
    std::int64_t memory = 0;  // what a pass changes
    Pass next = {};           // its unit: how many are done
    std::uint32_t units = 0;  // 0 of a lane without passes
    std::uint16_t device = 0;
    bool has_edges = false;
    int done() const { return static_cast<int>(next.micro_batch); }
  };
  LaneState lane_of_stage(Lane lane, int stage) const;
  std::int64_t arrival_in_chain(const LaneState& of, std::uint32_t unit) const {
    const std::int64_t own = end_[of.own + unit];
    const std::int64_t neighbour = end_[of.neighbour + unit];
    const std::int64_t missing = (own | neighbour) >> 63;  // a mask: a branch would be mispredicted
    return (std::max(own, neighbour + of.send) & ~missing) | (kNever & missing);
  }
  std::int64_t next_arrival_over_edges(std::size_t lane, std::int64_t at) const;
  std::int64_t arrival_over_edges(const Pass& pass, std::int64_t at) const;

  bool cuts_backward(int stage) const {
    return splits_backward_ && inputs_.role(index(stage)) != Role::Output;
  }
  // All passes of a lane are of one kind.
  Pass pass_of(Lane lane, int stage, int unit) const {
    const PassKind kind = lane == Lane::Forward      ? PassKind::Forward
                          : lane == Lane::WeightGrad ? PassKind::WeightGrad
                          : cuts_backward(stage)     ? PassKind::InputGrad
                                                     : PassKind::Backward;
    return {kind, static_cast<std::uint16_t>(stage), static_cast<std::uint32_t>(unit)};
  }
  // When it ends.
  std::int64_t run(std::size_t on, std::int64_t start, std::int64_t duration, std::int64_t memory) {
    Device& device = devices_[on];
    if (device.first_start < 0) {
      device.first_start = start;
    } else {
      device.bubble += start - device.free;
      if (device.bubble > max_bubble_) {
        set_max_bubble(on);
      }
    }
    device.free = start + duration;
    device.memory += memory;
    return device.free;
  }
  void forget_ends();
  void set_max_bubble(std::size_t device) {
    max_bubble_ = devices_[device].bubble;
    bubble_holders_ += bubble_holder_ == device ? 0 : 1;
    bubble_holder_ = device;
  }

  static Facts facts_of(const PipelineOrder& order, const PassInputs& inputs,
                        const ScheduleParams& params, std::size_t stage);

  PipelineOrder order_;
  PassInputs inputs_;
  bool splits_backward_;
  bool decides_all_;
  bool equal_units_ = true;
  std::size_t stride_;
  std::vector<Facts> facts_;
  std::vector<LaneState> lanes_;  // by virtual stage and lane
  bool keeps_weight_grads_;       // when they end, as some edge asks for it
  bool fills_;                    // all of end_
  std::size_t num_ends_;
  std::unique_ptr<std::int64_t[]> end_;  // by lane and unit, a row that is not read and one of
                                         // nothing; negative: not decided; with Asks::Next none
                                         // after that of the next
  std::vector<Device> devices_;
  std::vector<std::vector<int>> stages_on_;  // by device
  std::int64_t max_bubble_ = 0;
  std::size_t bubble_holder_ = 0;  // the device with the largest
  int bubble_holders_ = 0;         // how often that was another one
};

}  // namespace orrery::sim
