// SPDX-License-Identifier: Apache-2.0
// Pipelines without flush whose stages are on several devices each (1F1B-RR of PipeDream): replica
// k of r has micro-batches k, k + r, ... with both passes, so that each visits one device of every
// stage, and an update waits for the gradients of all replicas of the stage (edges). Placements
// repeat after the least common multiple of the replicas, which is the number of chains.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

// Micro-batches that a device of each stage holds at most: devices from that stage on over its
// replicas, rounded up, as in PipeDream's runtime; p - i for one device a stage.
std::vector<int> in_flight(const ScheduleParams& params);
// Of all replicas of a stage, the largest.
int most_in_flight(const ScheduleParams& params);
// After so many micro-batches devices are dealt the same again.
std::int64_t turns_of(const ScheduleParams& params);

// Whether some stage is on several devices.
bool has_replicated_stages(const ScheduleParams& params);

// An update of a stage after `per_update` micro-batches, at least one of each replica.
PipelineOrder with_replicated_stages(const ScheduleParams& params, int iterations, int per_update,
                                     Versions versions);

// "" when there is one number, at least 1, for every stage, and they do not take too many chains.
Refusal check_replicated_stages(const ScheduleParams& params);
// Whole turns of micro-batches.
Refusal check_turns(const ScheduleParams& params);

}  // namespace orrery::sim
