// SPDX-License-Identifier: Apache-2.0
// Frozen encoders of the next iteration, data-parallel over all devices, in the idle times of a
// backbone: portions of a batch run where they end before the backbone goes on, so that it is never
// delayed; the rest follows its last pass. Every device has a portion at least, and each of the
// others goes where it ends first, so that idle times are filled in their order and what does not
// fit is on the devices that end first. By default a portion takes half a forward of a stage of the
// backbone, and there are as many as micro-batches x devices. With slices k > 1 the encoders take k
// portions for a micro-batch, which stay on one device, as they work on the same activations.
#pragma once

#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

// `backbone` has as many chains of layers as chunks, one stage of each on every device, and lists.
PipelineOrder with_frozen_portions(const PipelineOrder& backbone, const ScheduleParams& params);

// One chunk, whole sequences, enough micro-batches for the portions, and sizes within the limits.
Refusal check_frozen_portions(const ScheduleParams& params);

}  // namespace orrery::sim
