// SPDX-License-Identifier: Apache-2.0
// 1F1B of a diffusion backbone in a step with self-conditioning: every micro-batch first goes
// forward once without gradients, and what the last stage makes of it goes back to the first, whose
// forward waits for it.
#pragma once

#include "sim/schedule.hpp"

namespace orrery::sim {

// Virtual stages 0 .. p - 1 are the backbone's, p .. 2p - 1 its extra forwards on the same devices;
// the only edge is the way back. `doubled`: a warm-up of 2 (p - i) - 1 micro-batches, not p - i.
PipelineOrder self_conditioned_1f1b(int stages, int micro_batches, bool doubled);

}  // namespace orrery::sim
