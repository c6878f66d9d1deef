// SPDX-License-Identifier: Apache-2.0
// Conversions of the residual stream (plan/block/relayout.hpp) that are not between blocks of one
// stage, whose passes have them:
//   between stages  messages are in the layout of the stage before, both ways; the stage behind
//                   converts the stream that arrives and the gradient that it sends
//   of the ends     where a schedule cuts embedding and head over all stages, they are no blocks of
//                   a stage; but the stream still goes from the embedding's layout to the first
//                   layer's and from the last layer's to the head's. The stage with the layer
//                   converts it in both passes
#pragma once

#include <vector>

#include "plan/stage/sliced.hpp"
#include "plan/stage/stage.hpp"

namespace orrery::plan {

// `stages` as of stage_contents(), of whole sequences or of a slice of them.
void add_conversions(const Plan& plan, BlockCosts& costs, std::vector<StageCost>& stages,
                     const Slice& slice = {});
// The same of all slices.
void add_conversions(const Plan& plan, BlockCosts& costs, SliceCosts& slices);

}  // namespace orrery::plan
