// SPDX-License-Identifier: Apache-2.0
// Why the search on a mixed cluster has no plan at all.
#pragma once

#include "plan/mixed/plan.hpp"
#include "search/space/constraints.hpp"

namespace orrery::search {

// Error naming the field of which every value is forbidden, or what is fixed and which value of it
// would do.
[[noreturn]] void explain_empty_mixed_space(const plan::MixedPlan& base,
                                            const Constraints& constraints);

}  // namespace orrery::search
