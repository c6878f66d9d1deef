// SPDX-License-Identifier: Apache-2.0
// What a rule that cannot go on has to change: the warm-up nearest to the written one with which it
// runs.
#pragma once

#include <string>

#include "sim/orders/schedule_document.hpp"

namespace orrery::sim {

// Of a rule with a warm-up for which try_rule finds nothing. Warm-ups are tried one by one, as many
// as take about a second, or few of the largest sizes; several change where one is not enough.
std::string warm_up_advice(const ScheduleDescription& rule, const ScheduleParams& params);

}  // namespace orrery::sim
