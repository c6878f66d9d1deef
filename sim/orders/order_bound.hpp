// SPDX-License-Identifier: Apache-2.0
// How short an order of one chain can be, whatever its lists: a device starts when its first
// virtual stage can have a forward, runs all its work, and after its last gradient that unit's
// gradients still travel to virtual stage 0. Times of ScheduleParams (sim/orders/list_builder.hpp
// counts alike). Exact where the device with most work never idles. O(virtual stages).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

class OrderBound {
 public:
  OrderBound(const std::vector<std::uint16_t>& device_of, const ScheduleParams& params,
             bool splits_backward);

  // No order ends earlier.
  SimTime makespan() const { return makespan_; }
  // Where a device has idled for so long, counted from time 0 on, by device, no order that goes on
  // from there ends before `makespan`.
  std::vector<std::int64_t> idle_within(SimTime makespan) const;

 private:
  SimTime makespan_;
  std::vector<std::int64_t> least_;  // by device: work, and what follows its last pass
};

}  // namespace orrery::sim
