// SPDX-License-Identifier: Apache-2.0
// How tokens reach their experts, as a row or its framework's recipe states it.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// A schedule that hides the exchanges of one micro-batch beside kernels of another, where the row
// or its recipe has it and `schedule` is the one that they ran in its place; else `schedule`.
std::string schedule_with_exchanges(const Measurement& row, const std::string& schedule);

// Tokens once to each node ("DeepEP"), in 8 bits ("fp8 dispatch").
void apply_dispatch(const Measurement& row, plan::Execution& execution);

// Whether a clause in lower case speaks of this alone.
bool names_dispatch(std::string_view clause);

}  // namespace orrery::studies
