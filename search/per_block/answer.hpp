// SPDX-License-Identifier: Apache-2.0
// What a per-block search that has ended says: its plans with their intervals, and the certificate.
#pragma once

#include <functional>

#include "search/per_block/state.hpp"

namespace orrery::search {

// `until`: how far its bounds look. The time of the search is in the state's result.
PerBlockOutcome per_block_answer(PerBlockState state, const PerBlockSpace& space,
                                 const Options& options, double until,
                                 const std::function<void(const ProgressReport&)>& progress);

}  // namespace orrery::search
