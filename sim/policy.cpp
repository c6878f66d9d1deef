// SPDX-License-Identifier: Apache-2.0
#include "sim/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace orrery::sim {
namespace {

class Run {
 public:
  Run(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
      const Policy& policy)
      : policy_(policy),
        stages_of_(skeleton.passes.size()),
        best_(skeleton.passes.size()),
        stale_(skeleton.passes.size(), true),
        lists_(std::move(skeleton), params, splits_backward) {
    const PipelineOrder& order = lists_.order();
    for (int s = 0; s < order.num_virtual_stages; ++s) {
      stages_of_[order.device_of[static_cast<std::size_t>(s)]].push_back(s);
    }
  }

  PipelineOrder run() {
    while (true) {
      const Choice* first = nullptr;
      for (std::size_t d = 0; d < best_.size(); ++d) {
        if (stale_[d]) {
          stale_[d] = false;
          best_[d] = best_of(d);
        }
        if (best_[d] && (first == nullptr || best_[d]->start < first->start)) {
          first = &*best_[d];
        }
      }
      if (first == nullptr) {
        return lists_.take();
      }
      put(first->pass);
    }
  }

 private:
  struct Choice {
    Pass pass;
    std::int64_t start = 0;
    Policy::Key key;
  };

  void put(Pass pass) {
    lists_.put(pass);
    const PipelineOrder& order = lists_.order();
    const auto mark = [&](int stage) {
      if (stage >= 0 && stage < order.num_virtual_stages) {
        stale_[order.device_of[static_cast<std::size_t>(stage)]] = true;
      }
    };
    for (int step = -1; step <= 1; ++step) {
      mark(pass.virtual_stage + step);
    }
    if (!order.edges.empty()) {
      stale_.assign(stale_.size(), true);
    }
  }

  std::optional<Choice> best_of(std::size_t device) const {
    std::optional<Choice> best;
    for (const int stage : stages_of_[device]) {
      for (const Lane lane : {Lane::Forward, Lane::Gradient, Lane::WeightGrad}) {
        if (is_left(lane, stage)) {
          offer(lists_.next(lane, stage), static_cast<int>(device), best);
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

  void offer(const Pass& pass, int device, std::optional<Choice>& best) const {
    const std::optional<std::int64_t> arrives = lists_.arrival(pass);
    if (!arrives || !policy_.admits(lists_, pass)) {
      return;
    }
    const std::int64_t start = std::max(*arrives, lists_.free(device));
    if (best && start > best->start) {
      return;
    }
    Policy::Key key = policy_.key(lists_, pass);
    if (!best || start < best->start || key < best->key) {
      best = Choice{pass, start, key};
    }
  }

  const Policy& policy_;
  std::vector<std::vector<int>> stages_of_;  // by device
  std::vector<std::optional<Choice>> best_;
  std::vector<bool> stale_;
  ListBuilder lists_;
};

}  // namespace

PipelineOrder run_policy(PipelineOrder skeleton, const ScheduleParams& params, bool splits_backward,
                         const Policy& policy) {
  return Run(std::move(skeleton), params, splits_backward, policy).run();
}

std::string check_looks(const ScheduleParams& params, int policies) {
  // Every decision looks at all devices and, about 8 times as slowly, at all chunks of one.
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
