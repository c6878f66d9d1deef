// SPDX-License-Identifier: Apache-2.0
// A step of packs (packs.hpp), put together from a simulation of each distinct one.
#pragma once

#include "plan/simulation/simulate.hpp"

namespace orrery::plan {

Simulation simulate_packs(const Plan& plan, const SimulateOptions& options);

}  // namespace orrery::plan
