// SPDX-License-Identifier: Apache-2.0
// Cells of a row that contradict each other.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Which stated cells the simulated plan does not follow, and what it has instead, in words: the
// batch against its micro-batches, the parameters against those of the widths.
std::vector<std::string> contradictions(const Measurement& stated, const plan::Plan& plan);

}  // namespace orrery::studies
