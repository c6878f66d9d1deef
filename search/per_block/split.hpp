// SPDX-License-Identifier: Apache-2.0
// Blocks are whole: where the program of a pipeline ends with parts of blocks in a virtual stage,
// the stage has the whole number below or the one above in every plan, and both halves have a
// bound of their own. One device after the other, as most plans of a device are ruled out by its
// own load. Empty where all stages have whole numbers of blocks.
#pragma once

#include <vector>

#include "search/per_block/program.hpp"

namespace orrery::search {

std::vector<std::vector<StageRange>> split_stage(const Shares& shares, const Pipeline& pipeline,
                                                 const std::vector<StageRange>& known);

}  // namespace orrery::search
