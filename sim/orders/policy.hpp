// SPDX-License-Identifier: Apache-2.0
// Schedules given as a policy: whenever a device can start something, the best pass that is ready
// and admitted starts. The policy is run once with the times of ScheduleParams; the lists it makes
// are the schedule. Lanes run their units in order. A device chooses again when it has run a pass;
// what arrives meanwhile is only compared with its choice. What repeats is copied
// (sim/orders/list_repetition.hpp). O(passes that are not x lanes per device), and O(devices) for a
// round of passes that cannot reach each other.
#pragma once

#include <array>
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
  int begun;               // micro-batches of which some forward of the device has run
  std::int64_t with_next;  // activations if those and the next one have all their forwards here

  // Passes that the device has run of a lane, of all its virtual stages.
  std::size_t done(Lane lane) const {
    std::size_t done = 0;
    for (const int stage : lists.stages_on(device)) {
      done += static_cast<std::size_t>(lists.done(lane, stage));
    }
    return done;
  }
};

// `rank(view, lane)` of the passes of a lane and `admits(view, lane, pass)`, whether a pass that
// has its inputs may start, look at nothing but this; gradients should always be admitted.
// `place(pass)` is a PolicyPlace, asked for once a pass. `period`: all of this is the same when the
// units of all passes are a multiple of it later; 0: it may not be.
template <typename Rank, typename Place, typename Admits>
struct Policy {
  Rank rank;
  Place place;
  Admits admits;
  int period = 0;
};
template <typename Rank, typename Place, typename Admits>
Policy(Rank, Place, Admits, int = 0) -> Policy<Rank, Place, Admits>;

// "" when running `policies` of them does not take too long.
std::string check_looks(const ScheduleParams& params, int policies);

// Ranks: the other kind than the device ran before comes first.
inline constexpr auto by_turns = [](const DeviceView& view, Lane lane) {
  const auto& list = view.lists.order().passes[static_cast<std::size_t>(view.device)];
  return !list.empty() && lane_in_lists(list.back().kind) == lane ? 1 : 0;
};
inline constexpr auto gradients_first = [](const DeviceView&, Lane lane) {
  return lane == Lane::Forward ? 1 : 0;
};
inline constexpr auto no_place = [](const Pass&) { return PolicyPlace{0}; };

// Admits forwards while the device then holds at most `cap` activations (params.activation units),
// counting also those that micro-batches it has begun will still bring, so that they can finish.
bool within_cap_of_parts(const DeviceView& view, const Pass& pass, std::int64_t cap);
inline bool within_cap(const DeviceView& view, Lane lane, const Pass& pass, std::int64_t cap) {
  if (lane != Lane::Forward) {
    return true;
  }
  if (!view.lists.equal_units()) {  // chains cut micro-batches further
    return within_cap_of_parts(view, pass, cap);
  }
  // Conditions are put together where nobody could foresee the branches.
  const bool brings = view.lists.activation(pass.virtual_stage) > 0;
  const bool has_begun = static_cast<int>(pass.micro_batch) < view.begun;  // room was kept then
  return !brings | has_begun | (view.with_next <= cap);
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
        lists_(std::move(skeleton), params, splits_backward),
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
    for (std::size_t first = first_device(); best_[first].start < kNever; first = first_device()) {
      const std::int64_t now = best_[first].start;
      const int gradients = lists_.done(Lane::Gradient, 0);
      const bool goes_on =
          reach > 0 ? run_until(reach < kNever - now ? now + reach : kNever) : run_choice(first);
      if (!goes_on) {
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
    std::int64_t key = 0;  // rank, then place
    Waiting* waiting = nullptr;
  };
  struct Room {
    int begun = 0;
    std::int64_t to_come = 0;  // activations that these will still bring
    std::int64_t each = 0;     // of a micro-batch
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

  // Of those that can start first.
  std::size_t first_device() const {
    std::size_t first = 0;
    for (std::size_t d = 1; d < best_.size(); ++d) {
      first = best_[d].start < best_[first].start ? d : first;
    }
    return first;
  }

  // All that starts before `end`. Whether the run goes on.
  bool run_until(std::int64_t end) {
    for (std::size_t d = 0; d < best_.size(); ++d) {
      while (best_[d].start < end) {
        if (!run_choice(d)) {
          return false;
        }
      }
    }
    return true;
  }

  bool run_choice(std::size_t device) {
    const Choice choice = best_[device];
    if (!idle_within_.empty()) {
      idle_within_[device] -= choice.start - lists_.free(static_cast<int>(device));
      if (idle_within_[device] <= 0) {
        return false;
      }
    }
    put(*choice.waiting, choice.start, device);
    return true;
  }

  void look_at_all() {
    for (std::size_t d = 0; d < best_.size(); ++d) {
      rooms_[d] = room_of(static_cast<int>(d));
    }
    for (Waiting& waiting : waiting_) {
      take_next(waiting);
    }
    for (std::size_t d = 0; d < best_.size(); ++d) {
      choose(d);
    }
  }

  Room room_of(int device) const {
    Room room;
    for (const int stage : lists_.stages_on(device)) {
      room.begun = std::max(room.begun, lists_.done(Lane::Forward, stage));
      room.each += lists_.activation(stage);
    }
    for (const int stage : lists_.stages_on(device)) {
      room.to_come += lists_.activation(stage) * (room.begun - lists_.done(Lane::Forward, stage));
    }
    return room;
  }

  void put(Waiting& waiting, std::int64_t start, std::size_t device) {
    const std::uint32_t unit = waiting.pass.micro_batch;
    const std::int64_t end = lists_.put_next(waiting.number, start);
    Room& room = rooms_[device];
    const bool begins = (waiting.lane == Lane::Forward) & (static_cast<int>(unit) == room.begun);
    room.begun += begins ? 1 : 0;
    room.to_come += (begins ? room.each : 0) - waiting.brings;
    take_next(waiting);
    if (edges_from_.empty()) {
      wake(waiting, unit, end);
    } else {
      wake_over_edges(waiting, device);
    }
    choose(device);
  }

  // What waits for this pass has all its other inputs. The device chooses afterwards anyway.
  void wake(const Waiting& waiting, std::uint32_t unit, std::int64_t end) {
    Waiting& own = waiting_[waiting.own];
    own.arrives = own.pass.micro_batch == unit ? end : own.arrives;
    Waiting& beside = waiting_[waiting.beside];
    if (beside.pass.micro_batch == unit) {  // else it is not there yet, or further
      beside.arrives = end + beside.send;
      if (beside.device != waiting.device) {
        offer(beside);
      }
    }
  }

  void wake_over_edges(const Waiting& waiting, std::size_t device) {
    look_and_offer(waiting_[waiting.own], device);
    look_and_offer(waiting_[waiting.beside], device);
    for (const std::size_t e : edges_from_[static_cast<std::size_t>(&waiting - waiting_.data())]) {
      const Edge& edge = lists_.order().edges[e];
      look_and_offer(waiting_[slot_of(edge.to_lane, edge.to)], device);
    }
  }

  void look_and_offer(Waiting& waiting, std::size_t device) {
    look_at(waiting);
    if (waiting.device != device) {
      offer(waiting);
    }
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
    return {lists_, at, room.begun, lists_.memory(at) + room.to_come + room.each};
  }

  void choose(std::size_t device) {
    Choice best;
    const DeviceView view = view_of(device);
    const std::int64_t free = lists_.free(view.device);
    const std::array<std::int64_t, ListBuilder::kLanes> ranks = {rank_of(view, Lane::Forward),
                                                                 rank_of(view, Lane::Gradient),
                                                                 rank_of(view, Lane::WeightGrad)};
    const auto consider = [&](Lane lane, Waiting& waiting, std::int64_t rank) {
      const std::int64_t start = waiting.arrives > free ? waiting.arrives : free;
      if (start > best.start) {
        return;
      }
      const std::int64_t key = rank | waiting.place;
      const bool wins = (start < best.start) | (key < best.key);
      if (wins && policy_.admits(view, lane, waiting.pass)) {
        best = {start, key, &waiting};
      }
    };
    Waiting* const end = waiting_.data() + first_slot_[device + 1];
    const std::int64_t kinds = kinds_;
    for (Waiting* at = waiting_.data() + first_slot_[device]; at != end; at += kinds) {
      consider(Lane::Forward, at[0], ranks[0]);
      consider(Lane::Gradient, at[1], ranks[1]);
      if (kinds == 3) {
        consider(Lane::WeightGrad, at[2], ranks[2]);
      }
    }
    best_[device] = best;
  }

  std::int64_t rank_of(const DeviceView& view, Lane lane) const {
    return std::int64_t{policy_.rank(view, lane)} << 61;
  }

  // Of equal ones the first virtual stage, and its first lane, wins.
  void offer(Waiting& waiting) {
    Choice& best = best_[waiting.device];
    const std::int64_t free = lists_.free(waiting.device);
    const std::int64_t start = waiting.arrives > free ? waiting.arrives : free;
    if (start > best.start || start == kNever) {
      return;
    }
    const DeviceView view = view_of(waiting.device);
    const std::int64_t key = rank_of(view, waiting.lane) | waiting.place;
    const bool wins =
        start < best.start || key < best.key || (key == best.key && &waiting < best.waiting);
    if (wins && policy_.admits(view, waiting.lane, waiting.pass)) {
      best = {start, key, &waiting};
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
