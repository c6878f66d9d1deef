// SPDX-License-Identifier: Apache-2.0
// What the scales of fp8 tensors are taken from, in the words of a row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// "CurrentScaling", "FP8-CS", "1x128", "delayed"; no value where the detail names no recipe.
std::optional<plan::Fp8Scaling> stated_scaling(const Measurement& row);

// Clauses on scales that are none of these, a line each.
std::vector<std::string> unread_scaling(const Measurement& row);

}  // namespace orrery::studies
