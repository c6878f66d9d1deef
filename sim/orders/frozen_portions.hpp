// SPDX-License-Identifier: Apache-2.0
// Frozen encoders of the next iteration, data-parallel over all devices, in the idle times of a
// backbone: portions of a batch run where they end before the backbone goes on, so that it is never
// delayed; the rest follows its last pass. By default a portion takes half a forward of a stage of
// the backbone and a device has as many as there are micro-batches. With slices k > 1 the encoders
// take k portions for a micro-batch, and device d has those of micro-batches d, d + p, ...
#pragma once

#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

// `backbone` has as many chains of layers as chunks, one stage of each on every device, and lists.
PipelineOrder with_frozen_portions(const PipelineOrder& backbone, const ScheduleParams& params);

// One chunk, whole sequences, enough micro-batches for the portions, and sizes within the limits.
std::string check_frozen_portions(const ScheduleParams& params);

}  // namespace orrery::sim
