// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/found.hpp"

#include <algorithm>

#include "base/parallel.hpp"

namespace orrery::search {

void FoundPlans::keep(FoundPlan found) {
  const auto place =
      std::upper_bound(plans_.begin(), plans_.end(), found,
                       [](const FoundPlan& a, const FoundPlan& b) { return a.time < b.time; });
  plans_.insert(place, std::move(found));
  if (plans_.size() > most_) {
    plans_.pop_back();
  }
}

void FoundPlans::offer(FoundPlan found, plan::Simulator& simulator) {
  const bool late = plans_.size() == most_ && plans_.back().time <= found.time;
  const bool known = std::any_of(plans_.begin(), plans_.end(), [&](const FoundPlan& other) {
    return other.time == found.time && other.plan.blocks == found.plan.blocks &&
           other.plan.stage_blocks == found.plan.stage_blocks;
  });
  if (!late && !known && verdict(found.plan, simulator).fits) {
    keep(std::move(found));
  }
}

std::vector<Found> FoundPlans::simulated(std::size_t drawn, int draws,
                                         const std::function<bool()>& stop) const {
  std::vector<Found> found(plans_.size());
  parallel_for(plans_.size(), jobs_, [&](std::size_t index) {
    found[index].plan = plans_[index].plan;
    found[index].simulation = plan::simulate(
        found[index].plan, {.interval_draws = index < drawn ? draws : 0, .stop_draws = stop});
  });
  return found;
}

}  // namespace orrery::search
