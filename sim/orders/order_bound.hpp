// SPDX-License-Identifier: Apache-2.0
// How short an order of one chain can be, whatever its lists: a device starts when its first
// virtual stage can have a forward, runs all its work, and after its last gradient that unit's
// gradients still travel to virtual stage 0. Times of ScheduleParams (sim/orders/list_builder.hpp
// counts alike). With room for few micro-batches it also waits for the first result that comes back
// to it. Exact where the device with most work never idles otherwise. O(virtual stages).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

class OrderBound {
 public:
  // `ahead`: forwards of its first virtual stage that a device runs at most before any other pass.
  OrderBound(const std::vector<std::uint16_t>& device_of, const ScheduleParams& params,
             bool splits_backward, std::int64_t ahead = std::numeric_limits<std::int64_t>::max());

  // No order ends earlier.
  SimTime makespan() const { return makespan_; }
  // Where a device has idled for so long, counted from time 0 on, by device, no order that goes on
  // from there ends before `makespan`.
  std::vector<std::int64_t> idle_within(SimTime makespan) const;

 private:
  SimTime makespan_;
  std::vector<std::int64_t> least_;  // by device: work, and what follows its last pass
};

// Of a schedule with two chunks in a V and every backward cut, by what it promises to hold at most.
bool can_end_before(SimTime makespan, const Schedule& schedule, const ScheduleParams& params);

}  // namespace orrery::sim
