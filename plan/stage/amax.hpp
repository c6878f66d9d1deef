// SPDX-License-Identifier: Apache-2.0
// With delayed scaling in fp8 the largest magnitudes of a device's tensors are found over tensor,
// context and data ranks together: one all-reduce after every forward of a stage and one after
// every backward, which the pass waits for (TransformerEngine pytorch/fp8.py since 1.6,
// reduce_and_update_fp8_tensors: on leaving the outermost autocast, and with the backward of the
// first layer in it; Megatron-Core opens one around the layers of a model chunk, fp8_group is its
// get_amax_reduction_group).
#pragma once

#include <vector>

#include "plan/stage/stage.hpp"

namespace orrery::plan {

struct AmaxReductions {
  Mesh mesh;               // of the ranks of the stage
  std::vector<Axis> axes;  // of those that take part; empty: nothing is reduced
  Seconds forward;
  Seconds backward;
};

AmaxReductions amax_reductions(const StageContent& content, const Plan& plan, BlockCosts& costs,
                               const Slice& slice = {});

// Lengthens the passes of a stage by them; reductions of gradients go on beside the second.
void wait_for_amax(const AmaxReductions& amax, const Execution& execution, StageCost& stage);

}  // namespace orrery::plan
