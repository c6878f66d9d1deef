// SPDX-License-Identifier: Apache-2.0
// Where the ticks of a picture's axis stand: round values inside the limits, as many as leave room
// for their labels. Values are in whatever unit the caller labels them with. Deterministic; at most
// a few dozen ticks whatever the limits.
#pragma once

#include <vector>

namespace orrery {

// Multiples of 1, 2 or 5 times a power of ten in [low, high], at most `most` of them; the value
// itself when low == high. Empty unless low <= high and both are finite.
std::vector<double> linear_ticks(double low, double high, int most);

// For a logarithmic axis, 0 < low <= high: digits of each decade (more on a short axis, fewer on a
// long one), or linear ticks on an axis of less than a factor of two. Neighbours are at least
// `spacing` of the axis apart, which is the width of a label.
std::vector<double> logarithmic_ticks(double low, double high, double spacing);

}  // namespace orrery
