// SPDX-License-Identifier: Apache-2.0
// Says why fixed numbers cannot be a plan of this network, cluster and batch, before a search that
// would only find an empty space.
#pragma once

#include "plan/plan.hpp"
#include "search/space/constraints.hpp"

namespace orrery::cli {

// Error naming the numbers that do not multiply or divide.
void check_fixed(const plan::Plan& base, const search::Constraints& constraints);

}  // namespace orrery::cli
