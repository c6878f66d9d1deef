// SPDX-License-Identifier: Apache-2.0
// 1F1B over uniform slices and chunks, a micro-batch back in the reverse of its forward order
// (SlimPipe).
#pragma once

#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

// `extra` slices of a chunk more in flight than the pipeline needs.
PipelineOrder sliced_lifo(const ScheduleParams& params, int extra);
Refusal check_sliced_lifo(const ScheduleParams& params);

}  // namespace orrery::sim
