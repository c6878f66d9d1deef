// SPDX-License-Identifier: Apache-2.0
// Blocks are whole: where the program of a pipeline ends with parts of blocks on a device, it has
// the whole number below or the one above in every plan, and both halves have a bound of their own.
// Few devices can have the one below, as the others then have more than they can work off. Where
// all devices have whole numbers the same is asked of their virtual stages, one device after the
// other. Empty where these are whole, too.
#pragma once

#include <vector>

#include "search/per_block/program.hpp"

namespace orrery::search {

std::vector<std::vector<StageRange>> split_stages(const Shares& shares, const Pipeline& pipeline,
                                                  const std::vector<StageRange>& known);

}  // namespace orrery::search
