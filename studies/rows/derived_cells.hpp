// SPDX-License-Identifier: Apache-2.0
// What blank cells of a row must hold because of its other cells, whatever its confidence: the
// micro-batch and the degree that counts leave over, the form of a GPU.
#pragma once

#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Counts that remarks alone state: "gradient accumulation 32", "VPP=2",
// "num_layers_per_virtual_pipeline_stage=4".
void read_stated_counts(Measurement& row);

// Completes the row; says in words what it filled in.
std::vector<std::string> fill_from_cells(Measurement& row);

}  // namespace orrery::studies
