// SPDX-License-Identifier: Apache-2.0
// The ZB-V list heuristic (Qi et al., ICLR 2024, section 6): two chunks per device on a V placement
// under a cap of activations. Four combinations of "fill a gap before a forward / a late backward
// with a weight gradient", each with a second run that may use the bubbles of the first as
// allowance, where that changes it. O(8 p m).
#pragma once

#include <cstdint>

#include "sim/schedule.hpp"

namespace orrery::sim {

// `cap` in units of params.activation, which is that of one chunk.
PipelineOrder automatic_v(const ScheduleParams& params, std::int64_t cap);

}  // namespace orrery::sim
