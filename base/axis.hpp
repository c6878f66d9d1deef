// SPDX-License-Identifier: Apache-2.0
// Where the ticks of a picture's axis stand: round values inside the limits, as many as leave room
// for their labels, and what these say. Values are in whatever unit the caller labels them with.
// Deterministic; at most a few dozen ticks whatever the limits.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace orrery {

// Multiples of 1, 2 or 5 times a power of ten in [low, high], at most `most` of them; the value
// itself when low == high. Empty unless low <= high and both are finite.
std::vector<double> linear_ticks(double low, double high, int most);

// For a logarithmic axis, 0 < low <= high: digits of each decade (more on a short axis, fewer on a
// long one), or linear ticks on an axis of less than a factor of two, and of less than ten where
// digits leave it almost bare. Neighbours are at least `spacing` of the axis apart, which is the
// width of a label.
std::vector<double> logarithmic_ticks(double low, double high, double spacing);

// Texts of so many things, text(index, more), all with the fewest digits `more` for which no two
// are alike; with 12 where that is not enough.
std::vector<std::string> texts_apart(std::size_t count,
                                     const std::function<std::string(std::size_t, int)>& text);

// The labels of ticks, text(tick, more): no two alike, none rounded by as much as half the way to
// the next.
std::vector<std::string> tick_labels(const std::vector<double>& ticks,
                                     const std::function<std::string(double, int)>& text);

}  // namespace orrery
