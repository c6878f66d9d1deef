// SPDX-License-Identifier: Apache-2.0
// Degrees and batches of Megatron-Bridge's performance recipes of mixtures of experts, beside which
// the published tables of the same releases say other things.
#pragma once

#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// "ep 8, not 64 as in the recipe of 25.11": cells that are not the recipe's, which count as stated.
std::vector<std::string> recipe_contradictions(const Measurement& row);

}  // namespace orrery::studies
