// SPDX-License-Identifier: Apache-2.0
#include "sim/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "sim/first_start.hpp"

namespace orrery::sim {
namespace {

class Run {
 public:
  Run(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
      const Policy& policy)
      : policy_(policy),
        best_(skeleton.passes.size()),
        is_stale_(skeleton.passes.size(), false),
        first_(skeleton.passes.size()),
        lists_(std::move(skeleton), params, splits_backward),
        arrives_(kLanes.size() * static_cast<std::size_t>(lists_.order().num_virtual_stages)) {
    look_at_all();
  }

  PipelineOrder run() {
    while (true) {
      for (const std::size_t d : stale_) {
        best_[d] = best_of(static_cast<int>(d));
        first_.set(d, best_[d].start);
        is_stale_[d] = false;
      }
      stale_.clear();
      if (first_.none()) {
        return lists_.take();
      }
      put(best_[first_.first()]);
    }
  }

 private:
  static constexpr std::array<Lane, 3> kLanes = {Lane::Forward, Lane::Gradient, Lane::WeightGrad};

  struct Choice {
    Pass pass;
    std::int64_t start = FirstStart::kNever;
    Policy::Key key;
  };

  void put(Choice choice) {
    const int s = choice.pass.virtual_stage;
    lists_.put(choice.pass, choice.start);
    if (!lists_.order().edges.empty()) {
      look_at_all();
      return;
    }
    const Lane lane = lane_of(choice.pass.kind);
    look_at(lane, s);
    const auto unit = static_cast<int>(choice.pass.micro_batch);
    if (lane == Lane::Forward) {
      look_if_next(Lane::Forward, s + 1, unit);
      look_if_next(Lane::Gradient, s, unit);
    } else if (lane == Lane::Gradient) {
      look_if_next(Lane::Gradient, s - 1, unit);
      look_if_next(Lane::WeightGrad, s, unit);
    }
  }

  // Lanes that are not there yet, or further, have not been waiting for it.
  void look_if_next(Lane lane, int stage, int unit) {
    if (stage >= 0 && stage < lists_.order().num_virtual_stages &&
        lists_.done(lane, stage) == unit) {
      look_at(lane, stage);
    }
  }

  void look_at_all() {
    for (int s = 0; s < lists_.order().num_virtual_stages; ++s) {
      for (const Lane lane : kLanes) {
        look_at(lane, s);
      }
    }
  }

  // Whether the next pass of the lane has its inputs; its device chooses again.
  void look_at(Lane lane, int stage) {
    const PipelineOrder& order = lists_.order();
    if (stage < 0 || stage >= order.num_virtual_stages) {
      return;
    }
    arrives_[number(lane, stage)] =
        is_left(lane, stage) ? lists_.arrival(lists_.next(lane, stage)) : std::nullopt;
    const std::size_t device = order.device_of[static_cast<std::size_t>(stage)];
    if (!is_stale_[device]) {
      is_stale_[device] = true;
      stale_.push_back(device);
    }
  }

  Choice best_of(int device) const {
    Choice best;
    for (const int stage : lists_.stages_on(device)) {
      for (const Lane lane : kLanes) {
        if (const std::optional<std::int64_t> arrives = arrives_[number(lane, stage)]) {
          offer(lists_.next(lane, stage), std::max(*arrives, lists_.free(device)), best);
        }
      }
    }
    return best;
  }

  bool is_left(Lane lane, int stage) const {
    const bool wanted =
        lane == Lane::Forward || (!lists_.inputs().forward_only(static_cast<std::size_t>(stage)) &&
                                  (lane == Lane::Gradient || lists_.splits_backward()));
    return wanted && lists_.done(lane, stage) < lists_.units(stage);
  }

  void offer(const Pass& pass, std::int64_t start, Choice& best) const {
    if (start > best.start || !policy_.admits(lists_, pass)) {
      return;
    }
    const Policy::Key key = policy_.key(lists_, pass);
    if (start < best.start || key < best.key) {
      best = Choice{pass, start, key};
    }
  }

  static std::size_t number(Lane lane, int stage) {
    return kLanes.size() * static_cast<std::size_t>(stage) + static_cast<std::size_t>(lane);
  }

  const Policy& policy_;
  std::vector<Choice> best_;        // by device
  std::vector<std::size_t> stale_;  // devices to choose for again
  std::vector<bool> is_stale_;
  FirstStart first_;
  ListBuilder lists_;
  std::vector<std::optional<std::int64_t>> arrives_;  // of the next pass of every lane
};

}  // namespace

PipelineOrder run_policy(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
                         const Policy& policy) {
  return Run(std::move(skeleton), params, splits_backward, policy).run();
}

std::string check_looks(const ScheduleParams& params, int policies) {
  // Where passes have attachments a decision looks at all devices and, about 8 times as slowly, at
  // all chunks of one.
  const std::int64_t most = 500'000'000 / policies;
  const std::int64_t looks = std::int64_t{params.stages} * params.chunks * params.micro_batches *
                             (params.stages + std::int64_t{8} * params.chunks);
  return !check_sizes(params).empty() || looks <= most
             ? ""
             : fmt::format(
                   "with so many passes this takes too long: stages x chunks x micro-batches "
                   "x (stages + 8 chunks) must be at most {}, not {}",
                   most, looks);
}

Policy::Key by_turns(const ListBuilder& lists, const Pass& pass) {
  const auto& list = lists.order().passes[lists.order().device_of[pass.virtual_stage]];
  const bool again = !list.empty() && lane_of(list.back().kind) == lane_of(pass.kind);
  return {again ? 1 : 0, 0, 0};
}

std::int64_t done_like(const ListBuilder& lists, const Pass& pass) {
  std::int64_t done = 0;
  for (const int stage : lists.stages_on(lists.order().device_of[pass.virtual_stage])) {
    done += lists.done(lane_of(pass.kind), stage);
  }
  return done;
}

bool within_cap(const ListBuilder& lists, const Pass& pass, std::int64_t cap) {
  if (lists.memory_change(pass) <= 0) {
    return true;
  }
  const int device = lists.order().device_of[pass.virtual_stage];
  const std::vector<int>& stages = lists.stages_on(device);
  int micro_batches = lists.units(pass.virtual_stage);  // chains may cut them further
  for (const int stage : stages) {
    micro_batches = std::min(micro_batches, lists.units(stage));
  }
  int begun = 0;
  for (const int stage : stages) {
    const int each = lists.units(stage) / micro_batches;
    begun = std::max(begun, (lists.done(Lane::Forward, stage) + each - 1) / each);
  }
  const int each = lists.units(pass.virtual_stage) / micro_batches;
  if (static_cast<int>(pass.micro_batch) / each < begun) {
    return true;  // room was kept when the micro-batch began
  }
  std::int64_t held = lists.memory(device);
  for (const int stage : stages) {
    const Pass next = lists.next(Lane::Forward, stage);
    const int left =
        (begun + 1) * (lists.units(stage) / micro_batches) - static_cast<int>(next.micro_batch);
    held += lists.memory_change(next) * left;
  }
  return held <= cap;
}

}  // namespace orrery::sim
