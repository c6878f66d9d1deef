// SPDX-License-Identifier: Apache-2.0
// The plan of a row whose tables do not state everything. Published runs are tuned: of micro-batch
// and model chunks that a row leaves open the fastest that fits into memory is taken, of
// recomputation the least that fits - no layer, then the first so many of every virtual stage
// (Megatron's --recompute-method block), then all. Neither looks at the measured value. At most a
// few dozen simulations a row, deterministic.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Completes `row`; `assumed` gets a line for everything that was filled in. Or why it cannot be
// simulated.
tl::expected<plan::Plan, std::string> chosen_plan(Measurement& row,
                                                  std::vector<std::string>& assumed);

}  // namespace orrery::studies
