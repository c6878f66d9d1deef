// SPDX-License-Identifier: Apache-2.0
// The rules between the numbers of a network that single ranges cannot express.
#pragma once

#include <string>

#include "models/network.hpp"

namespace orrery::models {

// Throws Error naming the field. Ranges of the fields themselves are checked, too, so that a spec
// built in code obeys the limits of a read one.
void check_spec(const NetworkSpec& spec, const std::string& where);
// More parameters than any network has: the totals stay exact in 64 bits below this.
inline constexpr double kMaxParameters = 1e15;

}  // namespace orrery::models
