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

std::vector<Found> FoundPlans::drawn(const std::function<bool()>& stop) const {
  std::vector<Found> drawn(plans_.size());
  parallel_for(plans_.size(), jobs_, [&](std::size_t index) {
    drawn[index].plan = plans_[index].plan;
    drawn[index].simulation = plan::simulate(
        drawn[index].plan, {.interval_draws = plan::kIntervalDraws, .stop_draws = stop});
  });
  return drawn;
}

}  // namespace orrery::search
