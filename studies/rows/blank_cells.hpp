// SPDX-License-Identifier: Apache-2.0
// What a plan has where a row's cells are blank and nothing else of the row says more: a line for
// each that other words could have changed, whatever the row's confidence.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Of the row as its table and remarks state it, and as it was completed.
std::vector<std::string> blank_cells(const Measurement& stated, const Measurement& completed,
                                     const plan::Plan& plan);

}  // namespace orrery::studies
