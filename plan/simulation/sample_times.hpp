// SPDX-License-Identifier: Apache-2.0
// The iteration times of a plan under seeded draws of the cost model's errors (interval.hpp), draw
// by draw: plans of one profile meet the same draws, so that they can be compared in each.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::plan {

// `draws` times, an even number. Deterministic; draws x one evaluation.
std::vector<Seconds> sample_times(const Plan& plan, int draws, std::uint64_t seed);

}  // namespace orrery::plan
