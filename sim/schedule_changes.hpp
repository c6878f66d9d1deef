// SPDX-License-Identifier: Apache-2.0
// What has to change for parameters that a schedule refuses.
#pragma once

#include <functional>
#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

using CheckParams = std::function<Refusal(const ScheduleParams&)>;

// The first broken constraint and, where some are found, few changes that meet it and all others.
// `check` names one constraint at a time, with one change (Schedule::check).
Refusal refusal_of(const CheckParams& check, const ScheduleParams& params);
// As text; "" when the parameters are allowed.
std::string refusal(const CheckParams& check, const ScheduleParams& params);
std::string refusal(const Schedule& schedule, const ScheduleParams& params);

}  // namespace orrery::sim
