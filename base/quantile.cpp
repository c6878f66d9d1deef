// SPDX-License-Identifier: Apache-2.0
#include "base/quantile.hpp"

#include <algorithm>
#include <cstddef>

namespace orrery {

double quantile(std::span<const double> sorted, double share) {
  if (sorted.empty()) {
    return 0;
  }
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double nearest_quantile(std::span<const double> sorted, double share) {
  if (sorted.empty()) {
    return 0;
  }
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

}  // namespace orrery
