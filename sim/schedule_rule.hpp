// SPDX-License-Identifier: Apache-2.0
// Runs the description of a schedule document through the policy machinery. O(passes x (stages + chunks)).
#pragma once

#include <string>

#include "sim/schedule_document.hpp"

namespace orrery::sim {

// "" when the description allows the parameters (params.cap, if any, replaces its own), else the
// broken constraint.
std::string check_rule(const ScheduleDescription& rule, const ScheduleParams& params);

// Complete lists; Error, citing `where`, when the description cannot go on. The parameters must
// have passed check_rule.
PipelineOrder run_rule(const ScheduleDescription& rule, const ScheduleParams& params,
                       const std::string& where);

}  // namespace orrery::sim
