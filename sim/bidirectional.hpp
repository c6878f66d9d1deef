// SPDX-License-Identifier: Apache-2.0
// Placements of schedules that run two copies of the model in opposite directions on the same
// devices: chain 0 begins on device 0, chain 1 on the last device.
#pragma once

#include "sim/schedule.hpp"

namespace orrery::sim {

// Half the micro-batches in each direction. `turns` 1: a straight line; 2: a V.
PipelineOrder two_directions(const ScheduleParams& params, int turns);

// The virtual stage of `chunk` (0 .. turns - 1, along the chain) on a device in a direction.
int stage_of(const PipelineOrder& order, int direction, int chunk, int device);

// Even stages, even micro-batches, at least `least` of them and, with `of` > 1, a multiple of it.
std::string check_two_directions(const ScheduleParams& params, int least, int of);

}  // namespace orrery::sim
