// SPDX-License-Identifier: Apache-2.0
// What plan documents of one kind of nodes and of several have in common: everything but the
// cluster, its profiles and which of its GPUs are used.
#pragma once

#include <string>

#include "base/json_reader.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

// Members "workload", "parallelism", "blocks", "execution", "memory_reserve", "network", "stages".
void read_plan_parts(ObjectReader& object, const std::string& where, Plan& plan);

// check_plan() but for the number of GPUs.
void check_plan_parts(const Plan& plan, const std::string& where);

}  // namespace orrery::plan
