// SPDX-License-Identifier: Apache-2.0
// Quantiles of ascending values; `share` between 0 and 1. O(1).
#pragma once

#include <span>

namespace orrery {

// Linear between order statistics; 0 of no values.
double quantile(std::span<const double> sorted, double share);
// The nearest order statistic, halves upwards; 0 of no values.
double nearest_quantile(std::span<const double> sorted, double share);

}  // namespace orrery
