// SPDX-License-Identifier: Apache-2.0
// Where a schedule cuts embedding and head over all stages, they are no blocks of a stage; but the
// residual stream still goes from the embedding's layout to the first layer's and from the last
// layer's to the head's. The stage with the layer converts it (plan/block/relayout.hpp), in both
// passes.
#pragma once

#include <vector>

#include "plan/stage/stage.hpp"

namespace orrery::plan {

// `stages` as of stage_contents(). Nothing where the schedule leaves the ends in their stages,
// whose blocks pay for it.
void add_end_conversions(const Plan& plan, BlockCosts& costs, std::vector<StageCost>& stages);

}  // namespace orrery::plan
