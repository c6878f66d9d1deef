// SPDX-License-Identifier: Apache-2.0
// Fields of plans that --fix and --forbid take.
#pragma once

#include <string_view>

namespace orrery::search {

// Also by one of the usual other names: "tp", "micro_batch", "mbs".
bool is_plan_field(std::string_view text);

}  // namespace orrery::search
