// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/pack_stages.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace orrery::plan {

PackStages::PackStages(const Plan& plan, PackCosts& costs)
    : block_costs_(costs), alone_(without_packs(plan)), contents_(stage_contents(alone_)) {}

PackCost& PackStages::of(const Pack& pack) {
  const auto [slot, is_new] = packs_.try_emplace(pack);
  if (is_new) {
    slot->second.pack = &slot->first;
    slot->second.costs = &block_costs_.of(alone(slot->second));
  }
  return slot->second;
}

const Plan& PackStages::alone(const PackCost& pack) {
  set_pack(*pack.pack, alone_);
  return alone_;
}

SliceCosts PackStages::costs_of(const PackCost& pack, CostOfStage cost_of) {
  const Plan& plan = alone(pack);
  const auto simulated = [&](const StageContent& content, const Slice& slice) {
    return cost_of(content, plan, *pack.costs, slice);
  };
  SliceCosts stages = slice_costs(plan, contents_, simulated);
  if (!stages.empty()) {
    add_offload_of_slices(plan, contents_, *pack.costs, stages);
    return stages;
  }
  for (std::size_t stage = 0; stage < contents_.size(); ++stage) {
    const std::size_t first = first_equal(contents_, stage);
    stages.push_back(first < stage ? stages[first]
                                   : std::vector<StageCost>{simulated(contents_[stage], {})});
  }
  return stages;
}

void PackStages::cost_all() {
  costs_.assign(contents_.size(), {});
  most_saved_ = 0;
  for (auto& [key, pack] : packs_) {
    SliceCosts stages = costs_of(pack, simulate_stage_within_step);
    pack.first_unit = static_cast<std::uint32_t>(costs_.front().size());
    pack.slices = static_cast<std::uint32_t>(stages.front().size());
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      std::move(stages[stage].begin(), stages[stage].end(), std::back_inserter(costs_[stage]));
    }
    pack.saved = saved_by(pack);
    most_saved_ = std::max(most_saved_, pack.saved);
  }
}

std::vector<StageCost> PackStages::at_end_of_step(const PackCost& pack, std::uint32_t cost) {
  std::vector<StageCost> stages;
  for (const std::vector<StageCost>& slices : costs_of(pack, simulate_stage)) {
    stages.push_back(slices[cost - pack.first_unit]);
  }
  return stages;
}

double PackStages::saved_by(const PackCost& pack) const {
  double bytes = 0;
  for (const std::vector<StageCost>& of_stage : costs_) {
    for (std::uint32_t slice = 0; slice < pack.slices; ++slice) {
      const StageCost& cost = of_stage[pack.first_unit + slice];
      bytes += static_cast<double>((cost.saved + cost.saved_ends).value());
    }
  }
  return bytes;
}

}  // namespace orrery::plan
