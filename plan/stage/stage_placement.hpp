// SPDX-License-Identifier: Apache-2.0
// Where a schedule puts the virtual stages and what bounds by stage ask of it, by its traits.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/stage/pipeline_floor.hpp"
#include "sim/schedule_traits.hpp"

namespace orrery::plan {

// With so many chunks on each device. The caller says what else is undecided, and whether updates
// are validated afterwards, so that iterations meet.
StagePlacement placement_of(const sim::ScheduleTraits& traits, int chunks,
                            std::vector<std::uint16_t> device_of);

}  // namespace orrery::plan
