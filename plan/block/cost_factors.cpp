// SPDX-License-Identifier: Apache-2.0
#include "plan/block/cost_factors.hpp"

#include <algorithm>
#include <bit>

#include "base/random.hpp"

namespace orrery::plan {

double factor_of(double x) {
  const double cut = std::clamp(x, -2.0, 2.0);
  const double root = (16.0 + cut) / (16.0 - cut);  // exp(cut / 8), Pade
  const double square = root * root;
  const double fourth = square * square;
  return fourth * fourth;
}

Seconds CostFactors::scaled(CostClass kind, Seconds time) const {
  const auto index = static_cast<std::size_t>(kind);
  const std::uint64_t operation = mix64(std::bit_cast<std::uint64_t>(time.value()) + index);
  const double own = distinct[index] * Random(seed ^ operation).normal();
  return time * factor_of(shared[index] + own);
}

Seconds CostFactors::scaled_host(Seconds time) const { return time * factor_of(host); }

}  // namespace orrery::plan
