// SPDX-License-Identifier: Apache-2.0
// How far a piece of work at a piecewise constant rate has come, in integer picoseconds.
// It ends at since + ceil(left / rate). A time that exceeds a picosecond by no more than rounding
// of the double arithmetic (2^-50 of what is left, or 1e-3 ps) is not pushed to the next one.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/sim_time.hpp"

namespace orrery::sim {

struct Progress {
  double left = 0.0;  // units of work
  double rate = 0.0;  // units per second since `since`
  SimTime since;

  // From `now` on the rate is another one. now >= since.
  void change_rate(SimTime now, double new_rate) {
    if (now > since) {
      left = std::max(0.0, left - rate * (static_cast<double>((now - since).ps) * 1e-12));
    }
    since = now;
    rate = new_rate;
  }

  // SimTime::max() when the work does not end at this rate (or not within 106 days).
  SimTime end() const {
    if (left <= 0.0) {
      return since;
    }
    const double ps = left / rate * 1e12;
    const double ceiling = std::ceil(ps - std::max(1e-3, ps * 0x1p-50));
    constexpr double kLimit = 9.2e18;
    if (!(ceiling < kLimit - static_cast<double>(since.ps))) {
      return SimTime::max();
    }
    return since + SimTime{std::max<std::int64_t>(0, static_cast<std::int64_t>(ceiling))};
  }
};

}  // namespace orrery::sim
