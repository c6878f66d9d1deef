// SPDX-License-Identifier: Apache-2.0
// The figures people ask for, from a finished simulation: throughput, MFU and HFU, and where
// the time of the busiest device goes.
#pragma once

#include <cstddef>
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

// Bytes that a unit keeps in each virtual stage of the order; of other workers nothing is told.
std::vector<ByteCount> kept_by_units(const Plan& plan, const sim::PipelineOrder& order,
                                     const std::vector<StageCost>& stages);

// The device whose passes take longest.
std::size_t busiest_device(const sim::PipelineResult& pipeline);
// Idle share of the device that waits longest, from its first pass to its last (as
// sim::bubble_fraction of an order).
double largest_bubble(const sim::PipelineResult& pipeline);

// What a device computes and waits for in its passes. `costs`: those of its stages; `device_of`: of
// all of them.
TimeBreakdown passes_breakdown(const Plan& plan, const std::vector<StageCost>& stages,
                               const std::vector<SimTime>& sends,
                               const std::vector<std::uint16_t>& device_of,
                               const sim::PipelineResult& pipeline, std::size_t device,
                               BlockCosts& costs);
// Adds what it waits for until the passes of all devices end at `makespan`, and what follows them.
void add_step_end(const StepEnd& end, SimTime busy, SimTime makespan, TimeBreakdown& breakdown);

// `device_of`: of the stages.
void fill_report(const Plan& plan, const std::vector<StageCost>& stages,
                 const std::vector<SimTime>& sends, const std::vector<std::uint16_t>& device_of,
                 const StepEnd& end, const StepWork& work, BlockCosts& costs, Simulation& result);

// Whether `result.memory` fits, and what of it is beside the devices.
void fill_fit(const Plan& plan, Simulation& result);

// Staleness, versions, period, and the bubble of the steady state.
void report_pace(const Plan& plan, const SteadyPace& pace, Simulation& simulation);

}  // namespace orrery::plan
