// SPDX-License-Identifier: Apache-2.0
// The shortest of the orders it is offered that keeps within a cap of activations, by the times a
// schedule plans with (ScheduleParams::times) and, where these hold on one placement alone, on it.
// Of equal ones the first; orders of one chain. Deterministic; O(passes) per order, less where a
// device idles for too long.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "sim/schedule.hpp"

namespace orrery::sim {

class ShortestOrder {
 public:
  // `cap` in micro-batches. `params` must outlive it.
  ShortestOrder(const ScheduleParams& params, double cap) : params_(params), cap_(cap) {}

  void offer(PipelineOrder order);
  // Of those so far; the largest time when none has kept within the cap.
  SimTime shortest() const { return shortest_; }
  // Error, citing `where`, when none has kept within the cap.
  PipelineOrder take(std::string_view where);

 private:
  const ScheduleParams& params_;
  double cap_;
  std::optional<PipelineOrder> best_;
  SimTime shortest_{std::numeric_limits<std::int64_t>::max()};
};

}  // namespace orrery::sim
