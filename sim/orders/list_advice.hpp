// SPDX-License-Identifier: Apache-2.0
// Which passes of lists that cannot run have to stand elsewhere.
#pragma once

#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

// Of complete lists that check_order refuses: the fewest changes after which they run. A pass, or
// one with all that it is joined with, stands elsewhere, before or after which other one, or is not
// joined with the next. Of long lists perhaps some more changes, or general terms, where finding
// fewer would take seconds.
std::string list_advice(const PipelineOrder& order);

}  // namespace orrery::sim
