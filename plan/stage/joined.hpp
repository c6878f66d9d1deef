// SPDX-License-Identifier: Apache-2.0
// Stages whose forwards and backwards run as one (docs/plan-schedules.md, Joined passes): what they
// hide, and how much at most.
#pragma once

#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

// Whether all layers are of one block and layout, or none has experts, so that nothing is hidden.
// O(blocks of the chain).
bool has_like_layers(const Plan& plan);

// What joined passes of a block hide at most: beside layers unlike it all the time in which its
// tokens travel and no kernel runs.
SimTime most_hidden(const BlockCost& block, bool like_layers);

// The layers of a stage whose passes are joined; none where the schedule joins no passes.
std::vector<BlockCosts::LayerRun> joined_layers(const StageContent& content, const Plan& plan,
                                                const BlockCosts& costs);

// Whether stages were simulated, so that their layers are listed; of others a bound is known.
bool lists_joined_layers(const std::vector<StageCost>& stages);

// What the forward of one stage and the backward of another on the same device hide; of unlike
// layers that were added up no less than that.
SimTime hidden_by(const StageCost& forward, const StageCost& backward, bool listed,
                  bool like_layers, BlockCosts& costs);

// What each pair of virtual stages hides. Of stages with unlike layers that were added up, not
// simulated, no less than that: a bound needs no replay.
void add_hidden(const std::vector<StageCost>& stages, const Plan& plan, BlockCosts& costs,
                sim::PipelineCosts& passes);

}  // namespace orrery::plan
