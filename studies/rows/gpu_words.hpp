// SPDX-License-Identifier: Apache-2.0
// What the cell of a GPU leaves open or says beside the GPU's name.
#pragma once

#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// How the words were read where they name no GPU exactly, and the power that they state where the
// GPU has another; a line each.
std::vector<std::string> gpu_notes(const std::string& text);

// "A100 + V100": no one GPU.
bool names_several_gpus(const std::string& text);

// Why a count of GPUs is none of ranks: MI250X modules hold two GPUs each ("32 (64 GCDs)", "2 GCDs
// a module"); "" where nothing says that modules are counted.
std::string counted_modules(const Measurement& row, const std::string& gpus);

// ' (did you mean "mi300x"?)' for words that are a misspelt GPU; "" for others.
std::string gpu_hint(const std::string& text);

}  // namespace orrery::studies
