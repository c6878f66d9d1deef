// SPDX-License-Identifier: Apache-2.0
// Rates that tables of kernels state beside their times (TFLOP/s, GB/s): a row whose rate and time
// contradict each other measured neither.
#pragma once

#include <string>

#include "studies/rows/table_cells.hpp"

namespace orrery::studies {

// What contradicts the time of a row, with file, line and column, as a fit refuses it; "" where
// nothing does or the row states no rate.
std::string contradicted_time(const Cells& cells);

}  // namespace orrery::studies
