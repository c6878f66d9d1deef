// SPDX-License-Identifier: Apache-2.0
// Schedules given as a policy: whenever a device can start something, the best pass that is ready
// and admitted starts. The policy is run once with the times of ScheduleParams; the lists it makes
// are the schedule. Lanes run their units in order. A device chooses again when it has run a pass;
// what arrives meanwhile is only compared with its choice. What repeats is copied
// (sim/orders/list_repetition.hpp). O(passes that are not x (lanes per device + log devices)).
#pragma once

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/orders/first_start.hpp"
#include "sim/orders/list_builder.hpp"
#include "sim/orders/list_repetition.hpp"

namespace orrery::sim {

// The smallest starts first, among passes that can start at the same time.
using PolicyKey = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

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
bool within_cap(const ListBuilder& lists, const Pass& pass, std::int64_t cap);

template <typename Key, typename Admits>
class PolicyRun {
 public:
  PolicyRun(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
            const Policy<Key, Admits>& policy)
      : policy_(policy),
        best_(skeleton.passes.size()),
        first_(skeleton.passes.size()),
        lists_(std::move(skeleton), params, splits_backward),
        repetition_(lists_, ListRepetition::Puts::ByStart,
                    lists_.order().edges.empty() ? policy.period : 0),
        arrives_(kLanes.size() * static_cast<std::size_t>(lists_.order().num_virtual_stages),
                 FirstStart::kNever) {
    const PipelineOrder& order = lists_.order();
    for (std::size_t e = 0; e < order.edges.size(); ++e) {
      waiting_.resize(arrives_.size());
      waiting_[number(order.edges[e].from_lane, order.edges[e].from)].push_back(e);
    }
  }

  PipelineOrder run() {
    look_at_all();
    while (!first_.none()) {
      const Choice next = best_[first_.first()];
      put(next.pass, next.start);
      if (next.pass.virtual_stage == 0 && lane_in_lists(next.pass.kind) == Lane::Gradient &&
          repetition_.returns(lists_.done(Lane::Gradient, 0), next.start,
                              [](const auto&) { return true; })) {
        repetition_.repeat(repetition_.most_times());
        look_at_all();
      }
    }
    return lists_.take();
  }

 private:
  static constexpr std::array<Lane, 3> kLanes = {Lane::Forward, Lane::Gradient, Lane::WeightGrad};

  struct Choice {
    Pass pass;
    std::int64_t start = FirstStart::kNever;
    PolicyKey key;
  };

  void look_at_all() {
    for (int s = 0; s < lists_.order().num_virtual_stages; ++s) {
      for (const Lane lane : kLanes) {
        look_at(lane, s);
      }
    }
    for (std::size_t d = 0; d < best_.size(); ++d) {
      choose(static_cast<int>(d));
    }
  }

  void put(const Pass pass, std::int64_t start) {
    const int s = pass.virtual_stage;
    const int device = device_of(s);
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
    if (!waiting_.empty()) {
      for (const std::size_t e : waiting_[number(lane, s)]) {
        const Edge& edge = lists_.order().edges[e];
        look_and_offer(edge.to_lane, edge.to, device);
      }
    }
    choose(device);
  }

  // Lanes that are not there yet, or further, have not been waiting for it.
  void look_if_next(Lane lane, int stage, int unit, int device) {
    if (stage >= 0 && stage < lists_.order().num_virtual_stages &&
        lists_.done(lane, stage) == unit) {
      look_and_offer(lane, stage, device);
    }
  }

  // The device that has run a pass chooses afterwards anyway.
  void look_and_offer(Lane lane, int stage, int device) {
    look_at(lane, stage);
    const int on = device_of(stage);
    if (on != device && offer(lane, stage, on)) {
      first_.set(static_cast<std::size_t>(on), best_[static_cast<std::size_t>(on)].start);
    }
  }

  // When the next pass of the lane has its inputs.
  void look_at(Lane lane, int stage) {
    arrives_[number(lane, stage)] =
        is_left(lane, stage) ? lists_.arrival(lists_.next(lane, stage)).value_or(FirstStart::kNever)
                             : FirstStart::kNever;
  }

  void choose(int device) {
    Choice& best = best_[static_cast<std::size_t>(device)];
    best.start = FirstStart::kNever;
    const std::size_t lanes = lists_.splits_backward() ? 3 : 2;
    for (const int stage : lists_.stages_on(device)) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        offer(kLanes[lane], stage, device);
      }
    }
    first_.set(static_cast<std::size_t>(device), best.start);
  }

  bool is_left(Lane lane, int stage) const {
    const bool wanted =
        lane == Lane::Forward || (!lists_.inputs().forward_only(static_cast<std::size_t>(stage)) &&
                                  (lane == Lane::Gradient || lists_.splits_backward()));
    return wanted && lists_.done(lane, stage) < lists_.units(stage);
  }

  // Of equal ones the first virtual stage, and its first lane, wins. Whether it is the choice now.
  bool offer(Lane lane, int stage, int device) {
    const std::int64_t arrives = arrives_[number(lane, stage)];
    Choice& best = best_[static_cast<std::size_t>(device)];
    const std::int64_t start = std::max(arrives, lists_.free(device));
    if (arrives == FirstStart::kNever || start > best.start) {
      return false;
    }
    const Pass pass = lists_.next(lane, stage);
    if (!policy_.admits(lists_, pass)) {
      return false;
    }
    const PolicyKey key = policy_.key(lists_, pass);
    const auto place = [](const Pass& of) {
      return std::pair(of.virtual_stage, static_cast<int>(lane_in_lists(of.kind)));
    };
    if (start == best.start &&
        (best.key < key || (key == best.key && place(best.pass) < place(pass)))) {
      return false;
    }
    best = Choice{pass, start, key};
    return true;
  }

  int device_of(int stage) const {
    return lists_.order().device_of[static_cast<std::size_t>(stage)];
  }
  static std::size_t number(Lane lane, int stage) {
    return kLanes.size() * static_cast<std::size_t>(stage) + static_cast<std::size_t>(lane);
  }

  const Policy<Key, Admits>& policy_;
  std::vector<Choice> best_;  // by device
  FirstStart first_;
  ListBuilder lists_;
  ListRepetition repetition_;
  std::vector<std::int64_t> arrives_;              // of the next pass of every lane
  std::vector<std::vector<std::size_t>> waiting_;  // edges from a lane; empty without edges
};

// What it could not place is missing in the lists: check_order names it.
template <typename Key, typename Admits>
PipelineOrder run_policy(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
                         const Policy<Key, Admits>& policy) {
  return PolicyRun<Key, Admits>(std::move(skeleton), params, splits_backward, policy).run();
}

}  // namespace orrery::sim
