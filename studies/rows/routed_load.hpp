// SPDX-License-Identifier: Apache-2.0
// How unevenly the tokens of a row are routed: what the busiest expert-parallel rank gets over the
// mean, as the row states it or as tokens were counted for the system and the kind of network that
// it names.
#pragma once

#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// 1 for rows of balanced routing, and where nothing was stated or counted.
double routing_imbalance(const Measurement& row);

// What is taken for the row, or that it says that routing is uneven and not how much.
std::vector<std::string> routing_remarks(const Measurement& row);

}  // namespace orrery::studies
