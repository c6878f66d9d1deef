// SPDX-License-Identifier: Apache-2.0
// The execution choices of a plan document: its "execution". Every member of Execution has a field.
#pragma once

#include "base/json_reader.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

Json to_json(const Execution& execution);
Execution read_execution(const JsonReader& value);

}  // namespace orrery::plan
