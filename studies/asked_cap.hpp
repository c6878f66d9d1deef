// SPDX-License-Identifier: Apache-2.0
// A cap of activations that is asked for beside a plan.
#pragma once

#include <string_view>

#include "plan/plan.hpp"

namespace orrery::studies {

// Error if it is the cap that the schedule of a plan refuses, where `cap` was asked for as `name`;
// 0: it was not.
void check_asked_cap(const plan::Plan& plan, double cap, std::string_view name);

}  // namespace orrery::studies
