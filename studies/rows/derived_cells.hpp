// SPDX-License-Identifier: Apache-2.0
// What blank cells of a row must hold because of its other cells, whatever its confidence: the
// micro-batch and the degree that counts leave over, the form of a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Counts that remarks alone state: "gradient accumulation 32", "VPP=2",
// "num_layers_per_virtual_pipeline_stage=4".
void read_stated_counts(Measurement& row);

// Of "32 (8 KV)", "32 (GQA, 8 groups)": heads of keys and values; 0 where the cell states none.
std::int64_t bracketed_kv_heads(std::string_view heads);

// Completes the row; says in words what it filled in.
std::vector<std::string> fill_from_cells(Measurement& row);

}  // namespace orrery::studies
