// SPDX-License-Identifier: Apache-2.0
// Degrees of expert parallelism that a space tries.
#pragma once

#include <cstdint>
#include <vector>

#include "models/network.hpp"
#include "plan/plan.hpp"
#include "search/space/constraints.hpp"

namespace orrery::search {

// Divisors of the experts and of the ranks that they may be spread over, those inside a replica of
// this layout (plan/block_rules.hpp) first and then those of `replicas` of them, that are admitted.
// {1} for a network without experts.
std::vector<int> expert_degrees(const plan::BlockPlan& layout, std::int64_t replicas,
                                const models::NetworkSpec& spec, const Constraints& constraints);

// Whether these are also parts of the ranks inside a replica, which then has several copies of an
// expert: where meshes are allowed, or ep and the place of experts are fixed.
bool may_copy_experts(const Constraints& constraints);

// Ways to lay experts on the tensor-parallel ranks (parallel folding) that are admitted: cut like
// all other widths (0), whole (1) or, where that is fixed or meshes are allowed, cut by some of the
// ranks. A single rank, and a network without experts, has one way, whatever is asked; that experts
// are cut by all may be said as 0 or as tp.
std::vector<int> expert_tensor_degrees(int tp, const models::NetworkSpec& spec,
                                       const Constraints& constraints);

}  // namespace orrery::search
