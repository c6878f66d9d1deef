// SPDX-License-Identifier: Apache-2.0
#include "base/sim_time.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"

namespace orrery {

SimTime to_sim_time(Seconds seconds) {
  const double value = seconds.value();
  if (!(value >= 0.0)) {
    bad_input("", fmt::format("a time of {} s cannot be simulated", value),
              "times must be at least zero");
  }
  const double picoseconds = value * 1e12;
  if (picoseconds >= 0x1p63) {
    throw BeyondSimulatedTime("", fmt::format("a time of {} s is beyond simulated time", value),
                              "at most 106 days can be simulated");
  }
  // 1e-12 has no exact double: a product within rounding error of an integer is that integer, so
  // that to_sim_time(to_seconds(t)) == t.
  const double nearest = std::round(picoseconds);
  const bool is_whole = std::abs(picoseconds - nearest) <= nearest * 0x1p-51;
  const double result = is_whole ? nearest : std::ceil(picoseconds);
  return {static_cast<std::int64_t>(result)};
}

void add_times(SimTime& sum, SimTime one, std::int64_t count) {
  std::int64_t all = 0;
  if (__builtin_mul_overflow(one.ps, count, &all) || __builtin_add_overflow(sum.ps, all, &sum.ps)) {
    throw BeyondSimulatedTime("", "a sum of times is beyond simulated time",
                              "at most 106 days can be simulated");
  }
}

}  // namespace orrery
