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

// `rank(lists, pass)` and `admits(lists, pass)`, whether the pass may start, look at nothing but
// the pass and its device; gradients should always be admitted. `place(pass)` is a PolicyPlace,
// asked for once a pass. `period`: all of this is the same when the units of all passes are a
// multiple of it later; 0: it may not be.
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
inline constexpr auto by_turns = [](const ListBuilder& lists, const Pass& pass) {
  const auto& list = lists.order().passes[lists.order().device_of[pass.virtual_stage]];
  const bool again = !list.empty() && lane_in_lists(list.back().kind) == lane_in_lists(pass.kind);
  return again ? 1 : 0;
};
inline constexpr auto gradients_first = [](const ListBuilder&, const Pass& pass) {
  return pass.kind == PassKind::Forward ? 1 : 0;
};
inline constexpr auto no_place = [](const Pass&) { return PolicyPlace{0}; };

// Passes of this one's lane that its device has done, of all its virtual stages.
inline std::size_t done_like(const ListBuilder& lists, const Pass& pass) {
  std::size_t done = 0;
  for (const int stage : lists.stages_on(lists.order().device_of[pass.virtual_stage])) {
    done += static_cast<std::size_t>(lists.done(lane_in_lists(pass.kind), stage));
  }
  return done;
}

// Admits forwards while the device then holds at most `cap` activations (params.activation units),
// counting also those that micro-batches it has begun will still bring, so that they can finish.
bool within_cap_of_stages(const ListBuilder& lists, const Pass& pass, std::int64_t cap);
inline bool within_cap(const ListBuilder& lists, const Pass& pass, std::int64_t cap) {
  const std::int64_t change = lists.memory_change(pass);
  const int device = lists.order().device_of[pass.virtual_stage];
  return change <= 0 ||
         (lists.stages_on(device).size() == 1 ? lists.memory(device) + change <= cap
                                              : within_cap_of_stages(lists, pass, cap));
}

template <typename Rules>
class PolicyRun {
 public:
  PolicyRun(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
            const Rules& policy, std::vector<std::int64_t> idle_within)
      : policy_(policy),
        idle_within_(std::move(idle_within)),
        best_(skeleton.passes.size()),
        lists_(std::move(skeleton), params, splits_backward),
        repetition_(lists_, ListRepetition::Puts::ByStart,
                    lists_.order().edges.empty() ? policy.period : 0),
        waiting_(ListBuilder::kLanes *
                 static_cast<std::size_t>(lists_.order().num_virtual_stages)) {
    const PipelineOrder& order = lists_.order();
    for (std::size_t d = 0; d < best_.size(); ++d) {
      first_lane_.push_back(lanes_on_.size());
      for (const int stage : lists_.stages_on(static_cast<int>(d))) {
        for (const Lane lane : {Lane::Forward, Lane::Gradient, Lane::WeightGrad}) {
          const std::size_t at = ListBuilder::number(lane, stage);
          lanes_on_.push_back(at);
          waiting_[at] = {kNever, 0, lists_.next(lane, stage), d, wakes(lane, at)};
        }
      }
    }
    first_lane_.push_back(lanes_on_.size());
    for (std::size_t e = 0; e < order.edges.size(); ++e) {
      edges_from_.resize(waiting_.size());
      edges_from_[ListBuilder::number(order.edges[e].from_lane, order.edges[e].from)].push_back(e);
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
    std::size_t device = 0;
    std::array<std::size_t, 2> wakes{};  // lanes that may wait for it; its own for none
  };
  struct Choice {
    std::int64_t start = kNever;
    std::int64_t key = 0;  // rank, then place
    std::size_t lane = 0;
  };

  std::array<std::size_t, 2> wakes(Lane lane, std::size_t at) const {
    constexpr std::size_t kNext = ListBuilder::kLanes;  // the same lane of the next virtual stage
    switch (lane) {
      case Lane::Forward:
        return {at + kNext < waiting_.size() ? at + kNext : at, at + 1};
      case Lane::Gradient:
        return {at > kNext ? at - kNext : at, at + 1};
      default:
        return {at, at};
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
    put(choice.lane, choice.start, device);
    return true;
  }

  void look_at_all() {
    for (std::size_t lane = 0; lane < waiting_.size(); ++lane) {
      take_next(lane);
    }
    for (std::size_t d = 0; d < best_.size(); ++d) {
      choose(d);
    }
  }

  void put(std::size_t lane, std::int64_t start, std::size_t device) {
    const Waiting& waiting = waiting_[lane];
    const auto unit = static_cast<int>(waiting.pass.micro_batch);
    lists_.put(waiting.pass, start);
    take_next(lane);
    for (const std::size_t other : waiting.wakes) {
      if (lists_.done(other) == unit) {  // else it is not there yet, or further
        look_and_offer(other, device);
      }
    }
    if (!edges_from_.empty()) {
      for (const std::size_t e : edges_from_[lane]) {
        const Edge& edge = lists_.order().edges[e];
        look_and_offer(ListBuilder::number(edge.to_lane, edge.to), device);
      }
    }
    choose(device);
  }

  // The device that has run a pass chooses afterwards anyway.
  void look_and_offer(std::size_t lane, std::size_t device) {
    look_at(lane);
    const std::size_t on = waiting_[lane].device;
    if (on != device) {
      offer(lane, lists_.free(static_cast<int>(on)), best_[on]);
    }
  }

  void take_next(std::size_t lane) {
    Waiting& waiting = waiting_[lane];
    waiting.pass.micro_batch = static_cast<std::uint32_t>(lists_.done(lane));
    waiting.place = policy_.place(waiting.pass);
    look_at(lane);
  }

  // When the next pass of the lane has its inputs.
  void look_at(std::size_t lane) { waiting_[lane].arrives = lists_.next_arrival(lane); }

  void choose(std::size_t device) {
    Choice best;
    const std::int64_t free = lists_.free(static_cast<int>(device));
    for (std::size_t at = first_lane_[device]; at < first_lane_[device + 1]; ++at) {
      offer(lanes_on_[at], free, best);
    }
    best_[device] = best;
  }

  // Of equal ones the first virtual stage, and its first lane, wins.
  void offer(std::size_t lane, std::int64_t free, Choice& best) const {
    const Waiting& waiting = waiting_[lane];
    const std::int64_t arrives = waiting.arrives;
    const std::int64_t start = arrives > free ? arrives : free;
    // Conditions are put together where nobody could foresee the branches.
    const bool never = arrives == kNever;
    const bool later = start > best.start;
    if (never | later) {
      return;
    }
    const std::int64_t rank = policy_.rank(lists_, waiting.pass);
    const std::int64_t key = rank << 61 | waiting.place;
    const bool worse = (best.key < key) | ((key == best.key) & (best.lane < lane));
    if (!((start == best.start) & worse) && policy_.admits(lists_, waiting.pass)) {
      best = Choice{start, key, lane};
    }
  }

  const Rules& policy_;
  std::vector<std::int64_t> idle_within_;  // left, by device; empty: any
  std::vector<Choice> best_;               // by device
  ListBuilder lists_;
  ListRepetition repetition_;
  std::vector<Waiting> waiting_;                      // by lane, as lists_ numbers them
  std::vector<std::size_t> lanes_on_;                 // device after device
  std::vector<std::size_t> first_lane_;               // of lanes_on_, by device
  std::vector<std::vector<std::size_t>> edges_from_;  // by lane; empty without
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
