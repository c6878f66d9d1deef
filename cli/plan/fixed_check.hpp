// SPDX-License-Identifier: Apache-2.0
// Says why fixed numbers cannot be a plan of this network, cluster and batch, before a search that
// would only find an empty space.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "search/space/constraints.hpp"

namespace orrery::cli {

// Error naming what is asked for and excluded at once, the numbers that do not multiply or divide,
// or the memory that is not there. `packed`: replicas take any number of sequences each.
void check_fixed(const plan::Plan& base, const search::Constraints& constraints, bool packed);

// Its part on experts, which needs no cluster: ranks for them where the network has none.
void check_fixed_experts(const models::NetworkSpec& spec, const search::Constraints& constraints);

// Fields of --fix and --forbid that mean nothing to this network, and why: "ep_inside has no
// effect: gpt2-medium has no experts".
std::vector<std::string> idle_constraints(const plan::Plan& base,
                                          const search::Constraints& constraints);

}  // namespace orrery::cli
