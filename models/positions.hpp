// SPDX-License-Identifier: Apache-2.0
// The table of learned positions: as many rows as `max_positions` says, else as the network's own
// sequence has tokens. A longer sequence has tokens without a row. Rotary, relative and ALiBi
// positions have no table.
#pragma once

#include <string>

#include "models/network.hpp"

namespace orrery::models {

// Rows of the table; 0: there is none.
std::int64_t position_rows(const NetworkSpec& spec);
// Error (bad input) when the table is too short for sequences of so many tokens.
void check_positions(const NetworkSpec& spec, std::int64_t sequence, const std::string& where);

}  // namespace orrery::models
