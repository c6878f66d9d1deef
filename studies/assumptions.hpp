// SPDX-License-Identifier: Apache-2.0
// What a row of partial confidence leaves open, filled in from its framework's defaults, so that it
// can be simulated; every assumption is returned in words and printed with the row. Rows of full
// confidence are left alone. None of the rules looks at the measured value (docs/validation.md).
#pragma once

#include <string>
#include <vector>

#include "studies/measurement.hpp"

namespace orrery::studies {

// Completes the row; recomputation that is not stated becomes none.
std::vector<std::string> assume_defaults(Measurement& row);

}  // namespace orrery::studies
