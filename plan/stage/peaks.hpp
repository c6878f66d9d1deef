// SPDX-License-Identifier: Apache-2.0
// Peak bytes of every pipeline device from the costs of its virtual stages.
#pragma once

#include <vector>

#include "plan/stage/live_counts.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stage/sliced.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stage/stage.hpp"

namespace orrery::plan {

// `kept` per virtual stage where an order splits backwards; `versions` of the parameters per
// virtual stage, empty for one of each.
std::vector<StageMemory> stage_memory(const Plan& plan, const std::vector<StageCost>& stages,
                                      const std::vector<LiveCounts>& live,
                                      const std::vector<SplitBackwards::Kept>& kept = {},
                                      const std::vector<int>& versions = {},
                                      const std::vector<SlicePeak>& slice_peaks = {});

}  // namespace orrery::plan
