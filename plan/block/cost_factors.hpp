// SPDX-License-Identifier: Apache-2.0
// One draw of what the cost model may be wrong by: a factor on the time of every kernel, collective
// and transfer. A class of operations shares one part (another software stack, another machine);
// the rest is drawn for each distinct operation, so that it averages out over many of them.
// Deterministic in the draw; O(1) an operation. docs/fidelity.md says where the spreads come from.
#pragma once

#include <array>
#include <cstdint>

#include "base/units.hpp"
#include "plan/block/kernels.hpp"

namespace orrery::plan {

struct CostFactors {
  std::array<double, kNumCostClasses> shared{};    // logarithms
  std::array<double, kNumCostClasses> distinct{};  // standard deviations of logarithms
  double host = 0;                                 // logarithm, of the time the host needs
  std::uint64_t seed = 0;                          // of the distinct parts

  // `time` of an operation of a class under this draw. Operations are told apart by their time.
  Seconds scaled(CostClass kind, Seconds time) const;
  Seconds scaled_host(Seconds time) const;
};

// Nearly exp(x), from exactly rounded operations alone: factor_of(-x) = 1 / factor_of(x), within
// 0.2 % of exp for |x| <= 1; larger x are cut to 2.
double factor_of(double x);

}  // namespace orrery::plan
