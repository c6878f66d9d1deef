// SPDX-License-Identifier: Apache-2.0
// Which passes of lists that cannot run have to stand elsewhere.
#pragma once

#include <string>

#include "sim/schedule.hpp"

namespace orrery::sim {

// Of complete lists that check_order refuses: the pass that is to stand before or after which other
// one on which device, or several, so that they run; found by trying what stuck devices wait for.
// Where no moves do, the pass that is not to be joined with the next. In general terms where that
// is not enough, or would take many seconds.
std::string list_advice(const PipelineOrder& order);

}  // namespace orrery::sim
