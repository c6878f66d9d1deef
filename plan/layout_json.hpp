// SPDX-License-Identifier: Apache-2.0
// The member "variables" of a block in a plan: axes that split other variables than their degree
// stands for.
#pragma once

#include "base/json_reader.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

Json variables_to_json(const BlockPlan& layout);
void read_variables(const JsonReader& value, BlockPlan& layout);

}  // namespace orrery::plan
