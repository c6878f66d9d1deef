// SPDX-License-Identifier: Apache-2.0
// What cells say that is not known or not modelled, so that no word passes silently.
#pragma once

#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// A line for each, in the order of the columns.
std::vector<std::string> unread_cells(const Measurement& row);

}  // namespace orrery::studies
