// SPDX-License-Identifier: Apache-2.0
// Blocks are whole: where the program of a pipeline ends with parts of blocks on neighbouring
// devices, these have the whole number below together or the one above in every plan, and both
// halves have a bound of their own. Where hardly any device can have less than it can work off, the
// half below says that all others are full, and the half above that these are: half of the devices
// are decided by one split. Where all devices have whole numbers the same is asked of consecutive
// virtual stages. Empty where these are whole, too.
#pragma once

#include <vector>

#include "search/per_block/program.hpp"

namespace orrery::search {

std::vector<std::vector<StageRange>> split_stages(const Shares& shares, const Pipeline& pipeline,
                                                  const std::vector<StageRange>& known);

}  // namespace orrery::search
