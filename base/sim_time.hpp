// SPDX-License-Identifier: Apache-2.0
// Simulated time: int64 picoseconds (106 days), so that equal inputs give equal bytes everywhere.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

#include "base/error.hpp"
#include "base/units.hpp"

namespace orrery {

struct SimTime {
  std::int64_t ps = 0;

  static constexpr SimTime max() { return {std::numeric_limits<std::int64_t>::max()}; }
  constexpr auto operator<=>(const SimTime&) const = default;
  constexpr SimTime& operator+=(SimTime other) {
    ps += other.ps;
    return *this;
  }
  constexpr SimTime& operator-=(SimTime other) {
    ps -= other.ps;
    return *this;
  }
  friend constexpr SimTime operator+(SimTime a, SimTime b) { return {a.ps + b.ps}; }
  friend constexpr SimTime operator-(SimTime a, SimTime b) { return {a.ps - b.ps}; }
  friend constexpr SimTime operator*(SimTime a, std::int64_t n) { return {a.ps * n}; }
};

// What was asked for takes, or could take, longer than simulated time reaches. The search of the
// homogeneous space passes over such plans.
class BeyondSimulatedTime : public Error {
 public:
  BeyondSimulatedTime(std::string_view where, std::string_view message, std::string_view hint)
      : Error(ErrorKind::BadInput, where, message, hint) {}
};

// The one conversion from costs to simulated time: rounds up to the next picosecond, except
// that a value within rounding error of a whole picosecond is that picosecond.
// Throws Error for NaN and negative values, BeyondSimulatedTime for anything beyond 106 days.
SimTime to_sim_time(Seconds seconds);

// sum + count x one, which must not pass what can be simulated (BeyondSimulatedTime).
void add_times(SimTime& sum, SimTime one, std::int64_t count = 1);

constexpr Seconds to_seconds(SimTime time) { return Seconds(static_cast<double>(time.ps) * 1e-12); }

}  // namespace orrery
