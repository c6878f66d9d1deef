// SPDX-License-Identifier: Apache-2.0
#include "plan/live_counts.hpp"

#include <algorithm>

namespace orrery::plan {

namespace {

bool dominates(const std::vector<int>& a, const std::vector<int>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), std::greater_equal<>());
}

void keep_maximal(std::vector<std::vector<int>>& maxima, const std::vector<int>& counts) {
  for (const std::vector<int>& known : maxima) {
    if (dominates(known, counts)) {
      return;
    }
  }
  std::erase_if(maxima, [&](const std::vector<int>& known) { return dominates(counts, known); });
  maxima.push_back(counts);
}

}  // namespace

std::vector<LiveCounts> live_counts(const sim::PipelineOrder& order) {
  std::vector<LiveCounts> devices(order.passes.size());
  std::vector<int> slot(static_cast<std::size_t>(order.num_virtual_stages), 0);
  for (std::size_t stage = 0; stage < slot.size(); ++stage) {
    std::vector<int>& stages = devices[order.device_of[stage]].stages;
    slot[stage] = static_cast<int>(stages.size());
    stages.push_back(static_cast<int>(stage));
  }
  for (std::size_t device = 0; device < devices.size(); ++device) {
    std::vector<int> counts(devices[device].stages.size(), 0);
    bool rising = false;
    for (const sim::Pass& pass : order.passes[device]) {
      int& count = counts[static_cast<std::size_t>(slot[pass.virtual_stage])];
      if (pass.kind == sim::PassKind::Forward) {
        ++count;
        rising = true;
      } else if (pass.kind == sim::PassKind::Backward || pass.kind == sim::PassKind::WeightGrad) {
        if (rising) {  // only a local maximum can be a maximum
          keep_maximal(devices[device].maxima, counts);
        }
        rising = false;
        --count;
      }
    }
    if (rising || devices[device].maxima.empty()) {
      keep_maximal(devices[device].maxima, counts);
    }
  }
  return devices;
}

}  // namespace orrery::plan
