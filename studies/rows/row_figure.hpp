// SPDX-License-Identifier: Apache-2.0
// The measured figure of a row and what is said of it.
#pragma once

#include "studies/rows/measurement.hpp"
#include "studies/rows/table_cells.hpp"

namespace orrery::studies {

// Metric, value, auxiliary figures, way of counting and remarks.
void read_figure(const Cells& cells, Measurement& row);

}  // namespace orrery::studies
