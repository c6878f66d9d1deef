// SPDX-License-Identifier: Apache-2.0
// Vocabulary parallelism (Yeung et al., MLSys 2025): the output layer is cut over all pipeline
// devices. Every micro-batch runs, on every device, a pass S (logits of the shard) after its last
// forward and a pass T (gradients of the shard) after all S have met. The last virtual stage's
// backward waits for all S (one barrier, algorithm 2) or for all T (two barriers, algorithm 1).
// The passes are inserted into the lists of a base order, whose own passes keep their order: S as
// soon as it can run, T before the next S.
#pragma once

#include "sim/schedule.hpp"

namespace orrery::sim {

// `base` is plain. Virtual stages V .. V + p - 1 are the shards: forward S, fused backward T. By
// default a whole output layer weighs as much as the layers of one device.
PipelineOrder with_output_layer(const PipelineOrder& base, const ScheduleParams& params,
                                int barriers);
// The same without passes.
PipelineOrder output_layer_skeleton(const PipelineOrder& base, int barriers);

// 1F1B on one chunk, V-Half on two, with `extra` micro-batches more in flight.
PipelineOrder vocabulary_base(const ScheduleParams& params, int extra);
std::string check_vocabulary(const ScheduleParams& params);

}  // namespace orrery::sim
