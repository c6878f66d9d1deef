// SPDX-License-Identifier: Apache-2.0
// What a plan asks of its pipeline: the parameters of its schedule and the time of the transfers
// between neighbouring virtual stages, alone on their route.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/stage.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

sim::ScheduleParams schedule_params(const Plan& plan);

// Of the boundary tensor from virtual stage s to s + 1, at index s; 0 within one device.
std::vector<SimTime> transfers(const Plan& plan, const BlockCosts& costs,
                               const std::vector<StageCost>& stages,
                               const std::vector<std::uint16_t>& device_of);

}  // namespace orrery::plan
