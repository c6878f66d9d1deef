// SPDX-License-Identifier: Apache-2.0
// What the event engine and the sweep have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "base/sim_time.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::sim {

inline constexpr SimTime kNever{-1};

[[noreturn]] void time_overflow();  // Error: beyond 106 days

inline SimTime checked_sum(SimTime time, SimTime duration) {
  SimTime sum;
  if (__builtin_add_overflow(time.ps, duration.ps, &sum.ps)) {
    time_overflow();
  }
  return sum;
}

// Why nothing can start any more, given the ends of what ran and the counters as they are.
Deadlock explain_deadlock(const Program& program, const std::vector<SimTime>& end,
                          const std::vector<std::int64_t>& counters);

}  // namespace orrery::sim
