// SPDX-License-Identifier: Apache-2.0
// The execution choices of a plan document: its "execution". Every member of Execution has a field.
#pragma once

#include "base/json_reader.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

// Fields that few plans state only where they differ from their defaults. Read, a field that is
// left out has its default; Errors name unknown and unusable ones.
Json to_json(const Execution& execution);
Execution read_execution(const JsonReader& value);

}  // namespace orrery::plan
