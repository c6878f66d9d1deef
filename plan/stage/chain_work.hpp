// SPDX-License-Identifier: Apache-2.0
// The work of the blocks of a chain that balanced cuts (plan/stages.hpp) divide.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::plan {

// Forward and backward of each block of the chain for one sequence on one device, by the cost
// model, in billionths of the longest: the work that balanced cuts divide.
std::vector<std::int64_t> work_of_chain(const Plan& plan);
// The same by the forward FLOPs alone, as published planners weigh them.
std::vector<std::int64_t> flops_of_chain(const Plan& plan);

}  // namespace orrery::plan
