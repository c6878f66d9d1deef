// SPDX-License-Identifier: Apache-2.0
// Runs the description of a schedule document through the policy machinery. O(passes x (stages +
// chunks)).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "sim/orders/schedule_document.hpp"

namespace orrery::sim {

inline constexpr SimTime kNoLimit{std::numeric_limits<std::int64_t>::max()};

// Whether the lists follow from counts alone, whatever passes take: with a warm-up, unless weight
// gradients run where there is time.
bool counts_decide(const ScheduleDescription& rule);

// "" when the description allows the parameters (params.cap, if any, replaces its own), else the
// broken constraint.
Refusal check_rule(const ScheduleDescription& rule, const ScheduleParams& params);

// Complete lists; nothing when the description cannot go on, or when it shows before they are
// complete, perhaps before they are begun, that they do not end before `limit`. The parameters must
// have passed check_rule.
std::optional<PipelineOrder> try_rule(const ScheduleDescription& rule, const ScheduleParams& params,
                                      SimTime limit = kNoLimit);

// A device comes to hold at least so many micro-batches.
double least_peak(const ScheduleDescription& rule, const ScheduleParams& params);

// The same; Error, citing `where`, when the description cannot go on.
PipelineOrder run_rule(const ScheduleDescription& rule, const ScheduleParams& params,
                       const std::string& where);

}  // namespace orrery::sim
