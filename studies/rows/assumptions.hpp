// SPDX-License-Identifier: Apache-2.0
// What a row leaves open, filled in from its framework's defaults, so that it can be simulated;
// every assumption is returned in words and printed with the row. Widths and formats are guessed in
// rows of partial confidence alone. No rule looks at the measured value (docs/validation.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Micro-batches of a step that the framework's defaults give a pipeline; 0 where there is no
// default.
std::int64_t usual_micro_batches(const Measurement& row);

// Completes the row; recomputation that is not stated becomes none.
std::vector<std::string> assume_defaults(Measurement& row);

}  // namespace orrery::studies
