// SPDX-License-Identifier: Apache-2.0
// Schedules given as a policy: whenever a device can start something, the best pass that is ready
// and admitted starts. The policy is run once with the times of ScheduleParams; the lists it makes
// are the schedule. Lanes run their units in order. A device chooses again when it has run a pass;
// what arrives meanwhile is only compared with its choice. What repeats is copied
// (sim/orders/list_repetition.hpp). O(passes that are not x (lanes per device + log devices)).
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "sim/orders/first_start.hpp"
#include "sim/orders/list_builder.hpp"
#include "sim/orders/list_repetition.hpp"

namespace orrery::sim {

// The smallest starts first, among passes that can start at the same time: by rank (below 4), then
// by place (below 2^44), then by virtual stage.
using PolicyKey = std::int64_t;
constexpr PolicyKey policy_key(std::int64_t rank, std::int64_t place = 0, std::int64_t stage = 0) {
  return rank << 61 | place << 17 | stage;
}

// `key(lists, pass)` is a PolicyKey; `admits(lists, pass)`: whether the pass may start; gradients
// always should. Both look at nothing but the pass and its device. `period`: all of this is the
// same when the units of all passes are a multiple of it later; 0: it may not be.
template <typename Key, typename Admits>
struct Policy {
  Key key;
  Admits admits;
  int period = 0;
};
template <typename Key, typename Admits>
Policy(Key, Admits, int = 0) -> Policy<Key, Admits>;

// "" when running `policies` of them does not take too long.
std::string check_looks(const ScheduleParams& params, int policies);

// A key: the other kind than the device ran before comes first.
PolicyKey by_turns(const ListBuilder& lists, const Pass& pass);

// Passes of this one's lane that its device has done, of all its virtual stages.
std::int64_t done_like(const ListBuilder& lists, const Pass& pass);

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

template <typename Key, typename Admits>
class PolicyRun {
 public:
  PolicyRun(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
            const Policy<Key, Admits>& policy, std::vector<std::int64_t> idle_within)
      : policy_(policy),
        idle_within_(std::move(idle_within)),
        best_(skeleton.passes.size()),
        first_(skeleton.passes.size()),
        lists_(std::move(skeleton), params, splits_backward),
        repetition_(lists_, ListRepetition::Puts::ByStart,
                    lists_.order().edges.empty() ? policy.period : 0),
        lane_at_(kLanes.size() * static_cast<std::size_t>(lists_.order().num_virtual_stages)) {
    const PipelineOrder& order = lists_.order();
    for (std::size_t d = 0; d < best_.size(); ++d) {
      first_lane_.push_back(waiting_.size());
      for (const int stage : lists_.stages_on(static_cast<int>(d))) {
        for (const Lane lane : kLanes) {
          lane_at_[number(lane, stage)] = waiting_.size();
          waiting_.push_back({FirstStart::kNever, lists_.next(lane, stage)});
        }
      }
    }
    first_lane_.push_back(waiting_.size());
    for (std::size_t e = 0; e < order.edges.size(); ++e) {
      edges_from_.resize(lane_at_.size());
      edges_from_[number(order.edges[e].from_lane, order.edges[e].from)].push_back(e);
    }
  }

  PipelineOrder run() {
    look_at_all();
    while (!first_.none()) {
      const std::size_t device = first_.first();
      const Pass pass = waiting_[best_[device].lane].pass;
      const std::int64_t start = best_[device].start;
      if (!idle_within_.empty()) {
        idle_within_[device] -= start - lists_.free(static_cast<int>(device));
        if (idle_within_[device] <= 0) {
          break;
        }
      }
      put(pass, start, device);
      if (pass.virtual_stage == 0 && lane_in_lists(pass.kind) == Lane::Gradient &&
          repetition_.returns(lists_.done(Lane::Gradient, 0), start,
                              [](const auto&) { return true; })) {
        repetition_.repeat(repetition_.most_times());
        look_at_all();
      }
    }
    return lists_.take();
  }

 private:
  static constexpr std::array<Lane, 3> kLanes = {Lane::Forward, Lane::Gradient, Lane::WeightGrad};

  struct Waiting {  // the next pass of a lane
    std::int64_t arrives;
    Pass pass;
  };
  struct Choice {
    std::int64_t start = FirstStart::kNever;
    PolicyKey key = 0;
    std::size_t lane = 0;
  };

  void look_at_all() {
    for (int s = 0; s < lists_.order().num_virtual_stages; ++s) {
      for (const Lane lane : kLanes) {
        look_at(lane, s);
      }
    }
    for (std::size_t d = 0; d < best_.size(); ++d) {
      choose(d);
    }
  }

  void put(const Pass pass, std::int64_t start, std::size_t device) {
    const int s = pass.virtual_stage;
    lists_.put(pass, start);
    const Lane lane = lane_in_lists(pass.kind);
    look_at(lane, s);
    const auto unit = static_cast<int>(pass.micro_batch);
    if (lane == Lane::Forward) {
      look_if_next(Lane::Forward, s + 1, unit, device);
      look_if_next(Lane::Gradient, s, unit, device);
    } else if (lane == Lane::Gradient) {
      look_if_next(Lane::Gradient, s - 1, unit, device);
      look_if_next(Lane::WeightGrad, s, unit, device);
    }
    if (!edges_from_.empty()) {
      for (const std::size_t e : edges_from_[number(lane, s)]) {
        const Edge& edge = lists_.order().edges[e];
        look_and_offer(edge.to_lane, edge.to, device);
      }
    }
    choose(device);
  }

  // Lanes that are not there yet, or further, have not been waiting for it.
  void look_if_next(Lane lane, int stage, int unit, std::size_t device) {
    if (stage >= 0 && stage < lists_.order().num_virtual_stages &&
        lists_.done(lane, stage) == unit) {
      look_and_offer(lane, stage, device);
    }
  }

  // The device that has run a pass chooses afterwards anyway.
  void look_and_offer(Lane lane, int stage, std::size_t device) {
    look_at(lane, stage);
    const std::size_t on = lists_.order().device_of[static_cast<std::size_t>(stage)];
    if (on != device &&
        offer(lane_at_[number(lane, stage)], lists_.free(static_cast<int>(on)), best_[on])) {
      first_.set(on, best_[on].start);
    }
  }

  // When the next pass of the lane has its inputs.
  void look_at(Lane lane, int stage) {
    Waiting& waiting = waiting_[lane_at_[number(lane, stage)]];
    waiting.pass.micro_batch = static_cast<std::uint32_t>(lists_.done(lane, stage));
    waiting.arrives = lists_.next_arrival(lane, stage);
  }

  void choose(std::size_t device) {
    Choice best;
    const std::int64_t free = lists_.free(static_cast<int>(device));
    for (std::size_t lane = first_lane_[device]; lane < first_lane_[device + 1]; ++lane) {
      offer(lane, free, best);
    }
    best_[device] = best;
    first_.set(device, best.start);
  }

  // Of equal ones the first virtual stage, and its first lane, wins. Whether it is the choice now.
  bool offer(std::size_t lane, std::int64_t free, Choice& best) const {
    const Waiting& waiting = waiting_[lane];
    const std::int64_t start = std::max(waiting.arrives, free);
    if (start > best.start || waiting.arrives == FirstStart::kNever ||
        !policy_.admits(lists_, waiting.pass)) {
      return false;
    }
    const PolicyKey key = policy_.key(lists_, waiting.pass);
    if (start == best.start && (best.key < key || (key == best.key && best.lane < lane))) {
      return false;
    }
    best = Choice{start, key, lane};
    return true;
  }

  static std::size_t number(Lane lane, int stage) {
    return kLanes.size() * static_cast<std::size_t>(stage) + static_cast<std::size_t>(lane);
  }

  const Policy<Key, Admits>& policy_;
  std::vector<std::int64_t> idle_within_;  // left, by device; empty: any
  std::vector<Choice> best_;               // by device
  FirstStart first_;
  ListBuilder lists_;
  ListRepetition repetition_;
  std::vector<Waiting> waiting_;                      // by device, virtual stage and lane
  std::vector<std::size_t> lane_at_;                  // of waiting_, by virtual stage and lane
  std::vector<std::size_t> first_lane_;               // of waiting_, by device
  std::vector<std::vector<std::size_t>> edges_from_;  // by virtual stage and lane; empty without
};

// What it could not place is missing in the lists: check_order names it. With `idle_within`, by
// device, the run ends when some device has idled for so long, counted from time 0.
template <typename Key, typename Admits>
PipelineOrder run_policy(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
                         const Policy<Key, Admits>& policy,
                         std::vector<std::int64_t> idle_within = {}) {
  return PolicyRun<Key, Admits>(std::move(skeleton), params, splits_backward, policy,
                                std::move(idle_within))
      .run();
}

}  // namespace orrery::sim
