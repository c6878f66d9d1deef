// SPDX-License-Identifier: Apache-2.0
// What planners of stages know of a plan: how long one micro-batch takes through all stages, how
// long in the slowest one, and what it exchanges. Two runs of the pipeline with one and two
// micro-batches give both: the second micro-batch follows the first by the slowest stage.
#pragma once

#include "plan/simulation/simulate.hpp"

namespace orrery::search {

struct StageTimes {
  Seconds all;            // a micro-batch forward and backward through every stage
  Seconds slowest;        // of one stage
  Seconds communication;  // exposed within stages, gradients included, of one micro-batch
};
// `plan` may have any batch; reduction of gradients and optimizer are in neither time.
StageTimes stage_times(plan::Simulator& simulator, plan::Plan plan);

}  // namespace orrery::search
