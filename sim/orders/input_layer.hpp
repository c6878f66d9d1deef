// SPDX-License-Identifier: Apache-2.0
// The input layer cut over all pipeline devices, beside an output layer that is (Yeung et al.,
// MLSys 2025): every device looks up its part of the vocabulary (IF) before the first stage's
// forward, which waits for the sum of all, and takes the gradient of that stage's input (IB) after
// its backward. Both follow a pass S of every device, or T where all run S and T together, so that
// nothing waits for them: IF one cycle before the sum is needed, IB one cycle after the gradient
// was ready, as sail-sg/VocabularyParallelism runs them
// (megatron/core/pipeline_parallel/vocab_parallel_schedule.py and interlaced_schedule.py). Before
// the first S, device d runs d + 1 passes IF, then one before each forward. Where a device has one
// virtual stage, one IB follows each backward after the last S, as there; else what comes after the
// last S runs at the end of the list, since gradients of other chunks or slices would wait for it.
#pragma once

#include "sim/schedule.hpp"

namespace orrery::sim {

// `order` is complete and has an output layer's shards, of which T comes before the next S; `after`
// is S or T. The virtual stages that follow are the shards: forward IF, fused backward IB, which
// weigh nothing by default. O(passes).
PipelineOrder with_input_layer(PipelineOrder order, PassKind after);

}  // namespace orrery::sim
