// SPDX-License-Identifier: Apache-2.0
// The eight steps of DualPipe and DualPipeV (DeepSeek-V3 report, section 3.2.1, and its repository)
// for one device: fused backwards, split ones (Bz, W) where weight gradients fill a gap, and blocks
// of a forward of one phase with a backward of the other. W passes are taken first in, first out.
#pragma once

#include <array>

#include "sim/schedule.hpp"

namespace orrery::sim {

// `stages`: the device's virtual stages of phase 0 and 1; `half`: devices from an end to the
// middle; `q`: distance from its end; `units`: micro-batches of each phase.
void append_dual_pipe(PipelineOrder& order, const std::array<int, 2>& stages, int half, int q,
                      int units);

}  // namespace orrery::sim
