// SPDX-License-Identifier: Apache-2.0
// Devices that take the segments (chunks) of their passes in a given order: a queue of forwards and
// one of gradients, group after group of micro-batches, in each segment after segment. Gradients
// take the segments of a group in reverse.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "sim/orders/policy.hpp"

namespace orrery::sim {

class SegmentQueues {
 public:
  // `units`: of each segment, in a micro-batch.
  SegmentQueues(const ScheduleParams& params, const std::vector<int>& units, int group) {
    for (int first = 0; first < params.micro_batches; first += group) {
      const int size = std::min(group, params.micro_batches - first);
      for (int k = 0; k < params.chunks; ++k) {
        const int last = params.chunks - 1 - k;
        add(queues_[0], k * params.stages, size * units[static_cast<std::size_t>(k)]);
        add(queues_[1], last * params.stages, size * units[static_cast<std::size_t>(last)]);
      }
    }
    add(queues_[0], 0, 1);  // after the last pass one that never arrives
    add(queues_[1], 0, 1);
  }

  // Only the next passes of both queues, forwards while the device then holds `cap` at most, in
  // turn where both can start.
  struct Next {
    std::int64_t rank(Lane lane) const { return ranks[static_cast<std::size_t>(lane)]; }
    bool admits(Lane lane, const Pass& pass, std::int64_t) const {
      return pass.virtual_stage == stages[static_cast<std::size_t>(lane)];
    }
    PolicyRanks ranks;
    std::array<int, ListBuilder::kLanes> stages;  // by lane; -1: none
  };
  Next look(const DeviceView& view, std::int64_t cap) const {
    const int forward = stage_of(view, 0);
    const bool room = within_cap(view, view.lists.next(Lane::Forward, forward), cap);
    return {by_turns(view), {room ? forward : -1, stage_of(view, 1), -1}};
  }

 private:
  static void add(std::vector<int>& queue, int stage, int times) {
    queue.insert(queue.end(), static_cast<std::size_t>(times), stage);
  }
  int stage_of(const DeviceView& view, std::size_t lane) const {
    return queues_[lane][static_cast<std::size_t>(view.done[lane])] + view.device;
  }

  std::array<std::vector<int>, 2> queues_;  // as virtual stages of the first device
};

}  // namespace orrery::sim
