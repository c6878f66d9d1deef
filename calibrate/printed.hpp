// SPDX-License-Identifier: Apache-2.0
// Numbers that were rounded where they were printed: the true one lies within half a unit of the
// last digit. Two statements of one fact contradict each other where no true number fits both.
#pragma once

#include <string_view>

#include "traces/nccl_lines.hpp"

namespace orrery::calibrate {

struct Printed {
  double low = 0;
  double high = 0;

  static Printed around(double value, double rounding) {
    // Decimals have no exact doubles: a bound met exactly must not fall to the wrong side.
    constexpr double kExact = 1e-9;
    return {(value - rounding) * (1 - kExact), (value + rounding) * (1 + kExact)};
  }
  static Printed of(double value, std::string_view digits) {
    return around(value, traces::half_of_last_digit(digits));
  }
  bool meets(const Printed& other) const { return low <= other.high && other.low <= high; }
  Printed times(double factor) const { return {low * factor, high * factor}; }
};

}  // namespace orrery::calibrate
