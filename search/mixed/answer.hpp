// SPDX-License-Identifier: Apache-2.0
// The plans that the search of a mixed cluster ends with.
#pragma once

#include <cstddef>
#include <vector>

#include "base/worker_crew.hpp"
#include "search/mixed/state.hpp"
#include "search/tree/drawing.hpp"

namespace orrery::search {

// Of the fastest plans, up to `most` that fit when they are replayed, as the first one did before.
std::vector<MixedNode> fitting_plans(const std::vector<MixedState::Ranked>& ranked,
                                     std::size_t most, ByteCount reserve,
                                     WorkerCrew<MixedWorker>& workers);

// Simulated again, with so many draws of the errors of their times; `early`, where there is one, is
// the first.
std::vector<MixedFound> drawn_plans(const MixedFound* early, const std::vector<MixedNode>& plans,
                                    int draws, Drawing& drawing, WorkerCrew<MixedWorker>& workers);

}  // namespace orrery::search
