// SPDX-License-Identifier: Apache-2.0
// The figures people ask for, from a finished simulation: throughput, MFU and HFU, and where
// the time of the busiest device goes.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/simulation/simulate.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/steady_pace.hpp"
#include "plan/stage/step_end.hpp"

namespace orrery::plan {

// What all GPUs do in an iteration.
struct StepWork {
  double tokens = 0;
  Flops model;
  Flops recomputed;
};
StepWork step_work(const Plan& plan, BlockCosts& costs);
// Of an iteration, on all ranks, in passes of their own that run forwards again.
Flops repeated_forwards(const Plan& plan, const std::vector<StageCost>& stages);

// `device_of`: of the stages.
void fill_report(const Plan& plan, const std::vector<StageCost>& stages,
                 const std::vector<SimTime>& sends, const std::vector<std::uint16_t>& device_of,
                 const StepEnd& end, const StepWork& work, BlockCosts& costs, Simulation& result);

// Whether `result.memory` fits, and what of it is beside the devices.
void fill_fit(const Plan& plan, Simulation& result);

// Staleness, versions, period, and the bubble of the steady state.
void report_pace(const Plan& plan, const SteadyPace& pace, Simulation& simulation);

}  // namespace orrery::plan
