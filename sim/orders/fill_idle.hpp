// SPDX-License-Identifier: Apache-2.0
// Lists with other work in their idle times: device d runs its list of `backbone` as early as it
// can and, where they end before its next pass can start, forwards of virtual stage `first_filler`
// + d, so that the backbone is never delayed. What does not fit follows the last pass. O(passes).
#pragma once

#include "sim/orders/list_builder.hpp"

namespace orrery::sim {

// `skeleton` holds the stages of the backbone and the fillers; `params` have times for all.
PipelineOrder fill_idle(PipelineOrder skeleton, const ScheduleParams& params,
                        const PipelineOrder& backbone, int first_filler);

}  // namespace orrery::sim
