// SPDX-License-Identifier: Apache-2.0
// How many micro-batches of each of its chunks a pipeline device holds at once. A device runs its
// list in order, a forward adds one activation and its gradient pass frees it, so the counts follow
// from the list alone, whatever the passes cost.
#pragma once

#include <vector>

#include "sim/schedule.hpp"

namespace orrery::plan {

struct LiveCounts {
  std::vector<int> stages;  // virtual stages of the device
  // Counts per entry of `stages`; only combinations that no other dominates.
  std::vector<std::vector<int>> maxima;
};

std::vector<LiveCounts> live_counts(const sim::PipelineOrder& order);  // per device

}  // namespace orrery::plan
