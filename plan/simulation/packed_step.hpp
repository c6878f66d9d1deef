// SPDX-License-Identifier: Apache-2.0
// A step of packs (packs.hpp), put together from a simulation of each distinct one.
#pragma once

#include "plan/simulation/pack_costs.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::plan {

// `costs`: what is known of packs in a pipeline.
Simulation simulate_packs(const Plan& plan, const SimulateOptions& options, PackCosts& costs);

}  // namespace orrery::plan
