// SPDX-License-Identifier: Apache-2.0
// A step of a pipeline whose micro-batches are packs (packs.hpp). A pack, and each slice of it,
// costs what one does in a plan of such packs alone; durations, transfers and bytes are put
// together by unit. Replicas meet at the gradient norm, so that the slowest one's step counts:
// reductions begin when the last replica has a gradient, and all of that is a maximum of sums.
// Memory is that of the fullest replica.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "plan/simulation/interval.hpp"
#include "plan/simulation/pack_costs.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::plan {

// `costs`: what is known of its packs.
Simulation simulate_packed_pipeline(const Plan& plan, const SimulateOptions& options,
                                    PackCosts& costs);
// Times under draws of the cost model's errors.
std::vector<Seconds> sample_packed_pipeline(const Plan& plan, std::span<const Draw> draws,
                                            const std::function<bool()>& stop);

}  // namespace orrery::plan
