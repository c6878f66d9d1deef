// SPDX-License-Identifier: Apache-2.0
// Runs the description of a schedule document through the policy machinery. O(passes x (stages +
// chunks)).
#pragma once

#include <optional>
#include <string>

#include "sim/orders/schedule_document.hpp"

namespace orrery::sim {

// "" when the description allows the parameters (params.cap, if any, replaces its own), else the
// broken constraint.
std::string check_rule(const ScheduleDescription& rule, const ScheduleParams& params);

// Complete lists; nothing when the description cannot go on. The parameters must have passed
// check_rule.
std::optional<PipelineOrder> try_rule(const ScheduleDescription& rule,
                                      const ScheduleParams& params);

// The same; Error, citing `where`, when the description cannot go on.
PipelineOrder run_rule(const ScheduleDescription& rule, const ScheduleParams& params,
                       const std::string& where);

}  // namespace orrery::sim
