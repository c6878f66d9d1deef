// SPDX-License-Identifier: Apache-2.0
// What has to change for parameters that a schedule refuses.
#pragma once

#include <functional>
#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

using CheckParams = std::function<std::string(const ScheduleParams&)>;

// "" when the parameters are allowed. Else the first broken constraint and, where some are found,
// few changes that meet it and all others: "...: set stages to 4", or "...: set stages to 6 and
// micro-batches to 12, and leave the cap out". `check` names one constraint at a time, with one
// change (Schedule::check).
std::string refusal(const CheckParams& check, const ScheduleParams& params);
std::string refusal(const Schedule& schedule, const ScheduleParams& params);

}  // namespace orrery::sim
