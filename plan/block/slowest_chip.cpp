// SPDX-License-Identifier: Apache-2.0
#include "plan/block/slowest_chip.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace orrery::plan {

namespace {

constexpr double kVariation = 0.08;
constexpr double kWhisker = 2.698;  // standard deviations: quartile plus 1.5 times their distance

// The value that a share of a standard normal distribution lies below. Bisection of its integral.
double normal_quantile(double share) {
  double low = -10;
  double high = 10;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < share ? low : high) = middle;
  }
  return high;
}

}  // namespace

double hungriest_chip(int chips) {
  if (chips <= 1) {
    return 1.0;
  }
  // Expectation of the largest of n (Blom 1958).
  const double largest = normal_quantile((chips - 0.375) / (chips + 0.25));
  return 1.0 + kVariation / (2 * kWhisker) * std::min(largest, kWhisker);
}

costmodel::Profile slowest_chip(const costmodel::Profile& profile, int chips) {
  costmodel::Profile slowest = profile;
  slowest.power.picojoules_per_flop *= hungriest_chip(chips);
  return slowest;
}

}  // namespace orrery::plan
