// SPDX-License-Identifier: Apache-2.0
// The iteration times of a plan under seeded draws of the cost model's errors (interval.hpp), draw
// by draw: plans of one profile meet the same draws, so that they can be compared in each.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "plan/plan.hpp"
#include "plan/simulation/interval.hpp"

namespace orrery::plan {

// Deterministic; draws x one evaluation. Fewer where `stop`, asked before each, ended them.
std::vector<Seconds> sample_times(const Plan& plan, std::span<const Draw> draws,
                                  const std::function<bool()>& stop = {});

}  // namespace orrery::plan
