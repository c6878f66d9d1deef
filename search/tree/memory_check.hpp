// SPDX-License-Identifier: Apache-2.0
// Whether a plan that fits by categories of memory also fits when it is replayed through the
// caching allocator (plan/replay/memory_replay.hpp): what was freed cannot always be used again.
// Far dearer than the categories, so that only plans that would be an answer are asked, and only
// where the categories leave little free.
#pragma once

#include <vector>

#include "plan/simulation/simulate.hpp"

namespace orrery::search {

// Whether what the categories say is so far below what there is that no replay is asked.
bool surely_fits(ByteCount counted, ByteCount capacity);

// What a plan that does not fit needs: `counted` says what its categories miss, the replay mostly
// more. A card of that size takes the plan, and hardly a smaller one.
plan::MemoryVerdict replayed_misfit(plan::Plan plan, plan::MemoryVerdict counted, ByteCount reserve,
                                    int jobs);
// `reserve` is kept free on every card; `jobs` threads.
plan::MemoryVerdict replay_verdict(plan::Plan plan, plan::Simulator& simulator, ByteCount reserve,
                                   int jobs);
// Whether a plan whose categories are known fits.
bool replay_fits(plan::Plan plan, const std::vector<plan::StageMemory>& counted, ByteCount reserve,
                 int jobs);

}  // namespace orrery::search
