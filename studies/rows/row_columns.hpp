// SPDX-License-Identifier: Apache-2.0
// The columns of measurements.
#pragma once

#include "base/csv.hpp"

namespace orrery::studies {

// Files may have further columns, but not misspelt ones; of what is required all that is missing at
// once.
void check_measurement_columns(const CsvTable& table);

}  // namespace orrery::studies
