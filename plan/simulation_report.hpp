// SPDX-License-Identifier: Apache-2.0
// The figures people ask for, from a finished simulation: throughput, MFU and HFU, and where
// the time of the busiest device goes.
#pragma once

#include <vector>

#include "plan/simulate.hpp"
#include "plan/stage.hpp"
#include "plan/step_end.hpp"

namespace orrery::plan {

void fill_report(const Plan& plan, const std::vector<StageCost>& stages,
                 const std::vector<SimTime>& sends, const sim::PipelineOrder& order,
                 const StepEnd& end, BlockCosts& costs, Simulation& result);

}  // namespace orrery::plan
