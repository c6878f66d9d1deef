// SPDX-License-Identifier: Apache-2.0
// The figures people ask for, from a finished simulation: throughput, MFU and HFU, and where
// the time of the busiest device goes.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/simulate.hpp"
#include "plan/stage.hpp"
#include "plan/step_end.hpp"

namespace orrery::plan {

// `device_of`: of the stages.
void fill_report(const Plan& plan, const std::vector<StageCost>& stages,
                 const std::vector<SimTime>& sends, const std::vector<std::uint16_t>& device_of,
                 const StepEnd& end, BlockCosts& costs, Simulation& result);

}  // namespace orrery::plan
