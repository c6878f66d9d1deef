// SPDX-License-Identifier: Apache-2.0
// What makes a serving plan consistent, beside what check_plan() asks of every plan.
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace orrery::plan {

// Throws Error, citing `where`.
void check_serving(const Plan& plan, const std::string& where);

// Whether shared experts can run while tokens travel to those of other replicas: persistent products
// leave exchanges no multiprocessors (block_collective_demand()).
bool hides_exchanges(const Plan& plan);

}  // namespace orrery::plan
