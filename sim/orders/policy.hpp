// SPDX-License-Identifier: Apache-2.0
// Schedules given as a policy: whenever a device can start something, the best pass that is ready
// and admitted starts. The policy is run once with the times of ScheduleParams; the lists it makes
// are the schedule. Lanes run their units in order. A device chooses again when it has run a pass,
// or something has arrived. What repeats is copied (sim/orders/list_repetition.hpp). O(passes that
// are not x lanes per device), and O(devices) for a round of passes that cannot reach each other.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/orders/list_builder.hpp"
#include "sim/orders/list_repetition.hpp"

namespace orrery::sim {

// Among passes that can start at the same time the smallest rank (below 4) starts first, of equal
// ranks the smallest place: a number below 2^44, then the virtual stage.
using PolicyPlace = std::int64_t;
constexpr PolicyPlace policy_place(std::int64_t place, std::int64_t stage = 0) {
  return place << 17 | stage;
}

// What a policy looks at when its device chooses.
struct DeviceView {
  const ListBuilder& lists;
  int device;
  std::int64_t begun;      // micro-batches of which some forward of the device has run
  std::int64_t with_next;  // activations if those and the next one have all their forwards here
  const std::array<std::int64_t, ListBuilder::kLanes>& done;  // passes run, by lane
};

// `look(view)`, asked for once a choice, has `rank(lane)` of the passes of a lane and `admits(lane,
// pass, brings)`, whether a pass that brings so many activations may start, asked of any, ready or
// past the last; gradients should always be admitted. It looks at nothing but the view.
// `place(pass)` is a PolicyPlace, asked for once a pass. `period`: all of this is the same when the
// units of all passes are that much later; 0: it may not.
template <typename Look, typename Place>
struct Policy {
  Look look;
  Place place;
  int period = 0;
};
template <typename Look, typename Place>
Policy(Look, Place, int = 0) -> Policy<Look, Place>;

// "" when running `policies` of them does not take too long.
Refusal check_looks(const ScheduleParams& params, int policies);

using PolicyRanks = std::array<std::int64_t, ListBuilder::kLanes>;  // by lane
inline constexpr PolicyRanks kGradientsFirst = {1, 0, 0};
// The other kind than the device ran before comes first.
inline PolicyRanks by_turns(const DeviceView& view) {
  const auto& list = view.lists.order().passes[static_cast<std::size_t>(view.device)];
  if (list.empty()) {
    return {};
  }
  const Lane last = lane_in_lists(list.back().kind);
  return {last == Lane::Forward, last == Lane::Gradient, last == Lane::WeightGrad};
}
inline constexpr auto no_place = [](const Pass&) { return PolicyPlace{0}; };

// A look that admits forwards while the device then holds at most `cap` activations
// (params.activation units), counting also those that micro-batches it has begun will still bring,
// so that they can finish. Chains have equally many units.
struct WithinCap {
  WithinCap(const DeviceView& view, const PolicyRanks& by_lane, std::int64_t cap)
      : ranks(by_lane),
        room_below(view.with_next <= cap ? std::numeric_limits<std::int64_t>::max() : view.begun) {}

  std::int64_t rank(Lane lane) const { return ranks[static_cast<std::size_t>(lane)]; }
  // Conditions are put together where branches would be mispredicted.
  bool admits(Lane lane, const Pass& pass, std::int64_t brings) const {
    return lane != Lane::Forward || ((std::int64_t{pass.micro_batch} < room_below) | (brings <= 0));
  }

  PolicyRanks ranks;
  std::int64_t room_below;  // units that may start; room was kept for those that have begun
};
// The same of one forward; chains may cut micro-batches further.
bool within_cap_of_parts(const DeviceView& view, const Pass& pass, std::int64_t cap);
inline bool within_cap(const DeviceView& view, const Pass& forward, std::int64_t cap) {
  return view.lists.equal_units()
             ? WithinCap(view, {}, cap)
                   .admits(Lane::Forward, forward, view.lists.activation(forward.virtual_stage))
             : within_cap_of_parts(view, forward, cap);
}

template <typename Rules>
class PolicyRun {
 public:
  PolicyRun(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
            const Rules& policy, std::vector<std::int64_t> idle_within)
      : policy_(policy),
        idle_within_(std::move(idle_within)),
        best_(skeleton.passes.size()),
        rooms_(skeleton.passes.size()),
        lists_(std::move(skeleton), params, splits_backward, ListBuilder::Asks::Next),
        repetition_(lists_, ListRepetition::Puts::ByStart,
                    lists_.order().edges.empty() ? policy.period : 0),
        kinds_(splits_backward ? 3 : 2),
        slot_of_(ListBuilder::kLanes *
                 static_cast<std::size_t>(lists_.order().num_virtual_stages)) {
    add_slots();
    for (std::uint32_t slot = 0; slot < waiting_.size(); ++slot) {
      set_wakes(slot);
    }
    const PipelineOrder& order = lists_.order();
    for (std::size_t e = 0; e < order.edges.size(); ++e) {
      edges_from_.resize(waiting_.size());
      edges_from_[slot_of(order.edges[e].from_lane, order.edges[e].from)].push_back(e);
    }
  }

  // In rounds: nothing that starts in one reaches another device before its end, so that devices
  // can go on by themselves until then.
  PipelineOrder run() {
    look_at_all();
    const std::int64_t reach = lists_.soonest_reach();
    for (std::int64_t now = choose_all(); now < kNever; now = choose_all()) {
      const int gradients = lists_.done(Lane::Gradient, 0);
      const std::int64_t end = now < kNever - reach ? now + reach : kNever;
      if (!(reach > 0 ? run_until(end, 0, best_.size()) : run_until(kNever, first_at(now), 1))) {
        break;
      }
      if (lists_.done(Lane::Gradient, 0) > gradients &&
          repetition_.returns(lists_.done(Lane::Gradient, 0), now,
                              [](const auto&) { return true; })) {
        repetition_.repeat(repetition_.most_times());
        look_at_all();
      }
    }
    return lists_.take();
  }

 private:
  static constexpr std::int64_t kNever = ListBuilder::kNever;

  struct Waiting {  // the next pass of a lane
    std::int64_t arrives = kNever;
    std::int64_t starts = kNever;  // the same, of what is admitted
    PolicyPlace place = 0;
    Pass pass;
    std::int64_t send = 0;     // of what comes from the virtual stage beside it
    std::int64_t brings = 0;   // activations, of forwards
    std::uint32_t number = 0;  // of the lane, in lists_
    std::uint32_t own = 0;     // slots of lanes that may wait for it, on its device and on that of
    std::uint32_t beside = 0;  // the virtual stage beside it; its own for none
    std::uint16_t device = 0;
    Lane lane = Lane::Forward;
  };
  struct Choice {
    std::int64_t start = kNever;
    Waiting* waiting = nullptr;
    bool stands = false;  // nothing has changed since
  };
  struct Room {
    std::int64_t begun = 0;
    std::int64_t to_come = 0;  // activations that these will still bring
    std::int64_t each = 0;     // of a micro-batch
    std::array<std::int64_t, ListBuilder::kLanes> done{};  // passes by lane
  };

  // Lanes, device after device; those of a virtual stage lie together.
  void add_slots() {
    for (std::size_t d = 0; d < best_.size(); ++d) {
      first_slot_.push_back(waiting_.size());
      for (const int stage : lists_.stages_on(static_cast<int>(d))) {
        for (const Lane lane : {Lane::Forward, Lane::Gradient, Lane::WeightGrad}) {
          const std::size_t number = ListBuilder::number(lane, stage);
          slot_of_[number] = static_cast<std::uint32_t>(waiting_.size());
          if (lane != Lane::WeightGrad || kinds_ == 3) {
            waiting_.push_back({.pass = lists_.next(lane, stage),
                                .send = lists_.send_to(number),
                                .brings = lane == Lane::Forward ? lists_.activation(stage) : 0,
                                .number = static_cast<std::uint32_t>(number),
                                .device = static_cast<std::uint16_t>(d),
                                .lane = lane});
          }
        }
      }
    }
    first_slot_.push_back(waiting_.size());
  }
  std::uint32_t slot_of(Lane lane, int stage) const {
    return slot_of_[ListBuilder::number(lane, stage)];
  }

  void set_wakes(std::uint32_t slot) {
    Waiting& waiting = waiting_[slot];
    const int stage = waiting.pass.virtual_stage;
    const bool is_last = lists_.inputs().is_last(static_cast<std::size_t>(stage));
    const bool is_first = lists_.inputs().is_first(static_cast<std::size_t>(stage));
    const auto wake = [&](bool wakes, Lane lane, int at) {
      return wakes && lists_.has_passes(ListBuilder::number(lane, at)) ? slot_of(lane, at) : slot;
    };
    waiting.own = waiting.beside = slot;
    if (waiting.lane == Lane::Forward) {  // other gradients wait for that of the next stage
      waiting.own = wake(is_last, Lane::Gradient, stage);
      waiting.beside = wake(!is_last, Lane::Forward, stage + 1);
    } else if (waiting.lane == Lane::Gradient) {
      waiting.own = wake(true, Lane::WeightGrad, stage);
      waiting.beside = wake(!is_first, Lane::Gradient, stage - 1);
    }
  }

  // When the first device can start.
  std::int64_t choose_all() {
    std::int64_t first = kNever;
    for (std::size_t d = 0; d < best_.size(); ++d) {
      if (!best_[d].stands) {
        choose(d);
      }
      first = std::min(first, best_[d].start);
    }
    return first;
  }

  std::size_t first_at(std::int64_t start) const {
    std::size_t first = 0;
    while (best_[first].start > start) {
      ++first;
    }
    return first;
  }

  // What devices from `first` on start before `end`, a pass of each. Whether the run goes on.
  bool run_until(std::int64_t end, std::size_t first, std::size_t devices) {
    for (std::size_t d = first; d < first + devices; ++d) {
      const std::int64_t start = best_[d].start;
      if (start < end) {
        if (!idle_within_.empty() && !may_idle(d, start)) {
          return false;
        }
        put(*best_[d].waiting, start, d);
      }
    }
    return true;
  }

  bool may_idle(std::size_t device, std::int64_t until) {
    idle_within_[device] -= until - lists_.free(static_cast<int>(device));
    return idle_within_[device] > 0;
  }

  void look_at_all() {
    for (std::size_t d = 0; d < best_.size(); ++d) {
      rooms_[d] = room_of(static_cast<int>(d));
      best_[d].stands = false;
    }
    for (Waiting& waiting : waiting_) {
      take_next(waiting);
    }
  }

  Room room_of(int device) const {
    Room room;
    for (const int stage : lists_.stages_on(device)) {
      room.begun = std::max<std::int64_t>(room.begun, lists_.done(Lane::Forward, stage));
      room.each += lists_.activation(stage);
      for (const Lane lane : {Lane::Forward, Lane::Gradient, Lane::WeightGrad}) {
        room.done[static_cast<std::size_t>(lane)] += lists_.done(lane, stage);
      }
    }
    for (const int stage : lists_.stages_on(device)) {
      room.to_come += lists_.activation(stage) * (room.begun - lists_.done(Lane::Forward, stage));
    }
    return room;
  }

  void put(Waiting& waiting, std::int64_t start, std::size_t device) {
    const std::uint32_t unit = waiting.pass.micro_batch;
    const std::int64_t end = lists_.put_next(waiting.number, device, start);
    Room& room = rooms_[device];
    ++room.done[static_cast<std::size_t>(waiting.lane)];
    const std::int64_t begins =
        std::int64_t{waiting.lane == Lane::Forward} & std::int64_t{unit == room.begun};
    room.begun += begins;
    room.to_come += (room.each & -begins) - waiting.brings;
    take_next(waiting);
    best_[device].stands = false;
    if (edges_from_.empty()) {
      wake(waiting, unit, end);
    } else {
      wake_over_edges(waiting);
    }
  }

  // What waits for this pass has all its other inputs; unless it is not there yet, or further.
  void wake(const Waiting& waiting, std::uint32_t unit, std::int64_t end) {
    const auto arrive = [unit](Waiting& at, std::int64_t arrives) {
      const std::int64_t waits = -std::int64_t{at.pass.micro_batch == unit};
      at.arrives ^= (at.arrives ^ arrives) & waits;
    };
    arrive(waiting_[waiting.own], end);
    Waiting& beside = waiting_[waiting.beside];
    arrive(beside, end + beside.send);
    best_[beside.device].stands = false;
  }

  void wake_over_edges(const Waiting& waiting) {
    look_again(waiting_[waiting.own]);
    look_again(waiting_[waiting.beside]);
    for (const std::size_t e : edges_from_[static_cast<std::size_t>(&waiting - waiting_.data())]) {
      const Edge& edge = lists_.order().edges[e];
      look_again(waiting_[slot_of(edge.to_lane, edge.to)]);
    }
  }

  void look_again(Waiting& waiting) {
    look_at(waiting);
    best_[waiting.device].stands = false;
  }

  void take_next(Waiting& waiting) {
    waiting.pass.micro_batch = static_cast<std::uint32_t>(lists_.done(waiting.number));
    waiting.place = policy_.place(waiting.pass);
    look_at(waiting);
  }

  // When the next pass of the lane has its inputs.
  void look_at(Waiting& waiting) { waiting.arrives = lists_.next_arrival(waiting.number); }

  DeviceView view_of(std::size_t device) const {
    const int at = static_cast<int>(device);
    const Room& room = rooms_[device];
    return {lists_, at, room.begun, lists_.memory(at) + room.to_come + room.each, room.done};
  }

  // Of what can start first the smallest key; of equal ones the first virtual stage, and its first
  // lane. Minima and masks: branches would be mispredicted.
  void choose(std::size_t device) {
    const auto look = policy_.look(view_of(device));
    Waiting* const lanes = waiting_.data() + first_slot_[device];
    const auto count = static_cast<std::int64_t>(first_slot_[device + 1] - first_slot_[device]);
    std::int64_t start = kNever;
    const auto admit = [&](Lane lane, Waiting& waiting) {
      const bool admitted = look.admits(lane, waiting.pass, waiting.brings);
      waiting.starts = admitted ? waiting.arrives : kNever;
      start = std::min(start, waiting.starts);
    };
    for_each_lane(lanes, count, admit);
    start = std::max(start, lists_.free(static_cast<int>(device)));
    const std::array<std::int64_t, ListBuilder::kLanes> ranks = {look.rank(Lane::Forward) << 61,
                                                                 look.rank(Lane::Gradient) << 61,
                                                                 look.rank(Lane::WeightGrad) << 61};
    std::int64_t least = kNever;  // rank, then place
    Waiting* first = lanes;
    const auto compare = [&](Lane lane, Waiting& waiting) {
      const std::int64_t late = (start - waiting.starts) >> 63;
      const std::int64_t key =
          ranks[static_cast<std::size_t>(lane)] | waiting.place | (late & kNever);
      first = key < least ? &waiting : first;
      least = key < least ? key : least;
    };
    for_each_lane(lanes, count, compare);
    best_[device] = {start, first, true};
  }

  template <typename Visit>
  void for_each_lane(Waiting* lanes, std::int64_t count, Visit visit) const {
    Waiting* const end = lanes + count;
    for (; kinds_ == 2 && lanes != end; lanes += 2) {
      visit(Lane::Forward, lanes[0]);
      visit(Lane::Gradient, lanes[1]);
    }
    for (; lanes != end; lanes += 3) {
      visit(Lane::Forward, lanes[0]);
      visit(Lane::Gradient, lanes[1]);
      visit(Lane::WeightGrad, lanes[2]);
    }
  }

  Rules policy_;
  std::vector<std::int64_t> idle_within_;  // left, by device; empty: any
  std::vector<Choice> best_;               // by device
  std::vector<Room> rooms_;                // by device
  ListBuilder lists_;
  ListRepetition repetition_;
  int kinds_;                                         // lanes of a virtual stage
  std::vector<Waiting> waiting_;                      // by slot
  std::vector<std::size_t> first_slot_;               // by device
  std::vector<std::uint32_t> slot_of_;                // lanes as lists_ numbers them
  std::vector<std::vector<std::size_t>> edges_from_;  // by slot; empty without
};

// What it could not place is missing in the lists: check_order names it. With `idle_within`, by
// device, the run ends when some device has idled for so long, counted from time 0.
template <typename Rules>
PipelineOrder run_policy(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
                         const Rules& policy, std::vector<std::int64_t> idle_within = {}) {
  return PolicyRun<Rules>(std::move(skeleton), params, splits_backward, policy,
                          std::move(idle_within))
      .run();
}

}  // namespace orrery::sim
