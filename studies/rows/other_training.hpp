// SPDX-License-Identifier: Apache-2.0
// Rows of what is no plain training, and remarks on what no plan has.
#pragma once

#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Why the row is no step in which all weights learn from one pass over a batch: inference, a
// simulation, learning from rewards or another model, frozen weights. Empty: it may be one.
std::string no_plain_training(const Measurement& row);

// Lines for `assumed` on what remarks state and the simulation leaves out.
std::vector<std::string> unmodelled_remarks(const Measurement& row);

}  // namespace orrery::studies
