// SPDX-License-Identifier: Apache-2.0
// The flags of plan::Execution that --fix and --forbid know by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::search {

// Null: no such flag.
bool plan::Execution::*execution_flag(std::string_view name);
std::vector<std::string> execution_flag_names();

}  // namespace orrery::search
