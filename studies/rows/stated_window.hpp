// SPDX-License-Identifier: Apache-2.0
// Windows of attention and room of experts, as remarks state them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Tokens of an expert over its share of them, as remarks state it; 0 (dropless) where they do not.
double capacity_factor(const Measurement& row);

// Keys that a query sees, as remarks state them ("sliding window 4096").
OptionalCount stated_window(const Measurement& row);

// With a window: every n-th layer sees everything, the fourth where the window is "in 3 of 4
// layers"; 0 where the row says no such thing.
std::int64_t stated_global_interval(const Measurement& row);

// What notes and variant gave of these.
std::vector<std::string> window_remarks(const Measurement& row);

}  // namespace orrery::studies
