// SPDX-License-Identifier: Apache-2.0
// What the distinct packs of a plan (plan/packs.hpp) cost in every virtual stage of its pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "plan/packs.hpp"
#include "plan/simulation/pack_costs.hpp"
#include "plan/stage/sliced.hpp"
#include "plan/stage/stage.hpp"

namespace orrery::plan {

// A distinct pack, and its slices: itself where it is not cut.
struct PackCost {
  const Pack* pack = nullptr;
  BlockCosts* costs = nullptr;
  double saved = 0;              // bytes, by all stages
  std::uint32_t first_unit = 0;  // of its slices among the costs of all packs
  std::uint32_t slices = 1;
};

class PackStages {
 public:
  // `costs` by lengths, to which those of the packs are added; stays alive.
  PackStages(const Plan& plan, PackCosts& costs);

  // Known or new; stays where it is. No pack is added once they are costed.
  PackCost& of(const Pack& pack);
  std::size_t size() const { return packs_.size(); }

  // A plan of such packs alone, until the next one is asked for.
  const Plan& alone(const PackCost& pack);

  // Of every pack as one that is neither the first nor the last of a step.
  void cost_all();
  // By virtual stage and Unit::cost.
  const SliceCosts& costs() const { return costs_; }
  double most_saved() const { return most_saved_; }
  // By virtual stage of a slice of the pack, with what happens once a step.
  std::vector<StageCost> at_end_of_step(const PackCost& pack, std::uint32_t cost);

  void set_factors(const CostFactors& factors) { block_costs_.set_factors(factors); }

 private:
  using CostOfStage = StageCost (*)(const StageContent&, const Plan&, BlockCosts&, const Slice&);
  // By virtual stage and slice.
  SliceCosts costs_of(const PackCost& pack, CostOfStage cost_of);
  double saved_by(const PackCost& pack) const;

  PackCosts& block_costs_;
  Plan alone_;
  std::vector<StageContent> contents_;
  std::map<Pack, PackCost, PackLess> packs_;
  SliceCosts costs_;
  double most_saved_ = 0;
};

}  // namespace orrery::plan
