// SPDX-License-Identifier: Apache-2.0
// Peak bytes of every pipeline device from the costs of its virtual stages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/live_counts.hpp"
#include "plan/simulate.hpp"
#include "plan/stage.hpp"

namespace orrery::plan {

std::vector<StageMemory> stage_memory(const Plan& plan, const std::vector<StageCost>& stages,
                                      const std::vector<LiveCounts>& live);

// The stage that overflows most and its largest category, in words; nothing when the plan fits.
std::optional<std::string> overflow(const Plan& plan, const std::vector<StageMemory>& memory);

}  // namespace orrery::plan
