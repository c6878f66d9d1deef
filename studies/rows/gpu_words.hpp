// SPDX-License-Identifier: Apache-2.0
// What the cells of a GPU and of a number of them leave open or say beside name and number.
#pragma once

#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"
#include "studies/rows/table_cells.hpp"

namespace orrery::studies {

// How the words were read where they name no GPU exactly, and the power that they state where the
// GPU has another; a line each.
std::vector<std::string> gpu_notes(const std::string& text);

// "16x8" and "16 nodes x 8 GPUs" are 16 nodes of 8 GPUs, "16 nodes" as many of `gpus_per_node`, "64
// A100" those of `gpu`; both are read before.
OptionalCount read_gpus(const Cells& cells, Measurement& row);

// "A100 + V100": no one GPU.
bool names_several_gpus(const std::string& text);

// Why a count of GPUs is none of ranks: MI250X modules hold two GPUs each ("32 (64 GCDs)", "2 GCDs
// a module"); "" where nothing says that modules are counted.
std::string counted_modules(const Measurement& row, const std::string& gpus);

// ' (did you mean "mi300x"?)' for words that are a misspelt GPU; "" for others.
std::string gpu_hint(const std::string& text);

}  // namespace orrery::studies
