// SPDX-License-Identifier: Apache-2.0
// What makes a serving plan consistent, beside what check_plan() asks of every plan.
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace orrery::plan {

// Throws Error, citing `where`.
void check_serving(const Plan& plan, const std::string& where);

}  // namespace orrery::plan
