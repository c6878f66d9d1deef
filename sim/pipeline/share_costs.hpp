// SPDX-License-Identifier: Apache-2.0
// Costs of an order from the times of one device's share of the model for one micro-batch. All
// times are multiplied by `scale`, so that shares divide without rounding, as far as the range of
// times allows.
#pragma once

#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {

struct ShareCosts {
  PipelineCosts costs;
  std::int64_t scale = 1;
};

// Transfers take share.send between devices, nothing on one.
ShareCosts share_costs(const PipelineOrder& order, const PassTimes& share);

// Divides times and scale by what keeps the longest run of the order within the range of times, if
// anything does.
void keep_in_range(const PipelineOrder& order, ShareCosts& scaled);

// What the schedule of `order` plans with (ScheduleParams::times) for such costs: passes of a chunk
// or slice as long as those of a share, and transfers as many times longer.
PassTimes planning_times(const PipelineOrder& order, PassTimes share);

// The same times (ScheduleParams::times) in the longest unit of which all are multiples: schedules
// multiply them by parts of a share and the like, which is to stay in the range of times.
void in_lowest_terms(std::vector<PassTimes>& times);

// Costs by ScheduleParams::times, unscaled: what a schedule plans with.
PipelineCosts stage_costs(const PipelineOrder& order, const ScheduleParams& params);

// Micro-batches of activations on the device with the most.
double largest_peak(const PipelineOrder& order, const PipelineResult& result);

// Idle time inside a device's span, and the share of the largest one in that span, of devices that
// run layers.
SimTime idle_of(const DeviceUse& use);
double bubble_fraction(const PipelineOrder& order, const PipelineResult& result);

// Transfers between devices in one run: activations and gradients that cross.
std::int64_t num_transfers(const PipelineOrder& order);
// Of all kinds, on all devices.
std::int64_t num_passes(const PipelineOrder& order);

}  // namespace orrery::sim
