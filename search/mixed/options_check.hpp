// SPDX-License-Identifier: Apache-2.0
// What the search of mixed clusters is not asked for.
#pragma once

#include "plan/mixed/plan.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

// Error for networks and choices of the search on one kind of nodes that the one on several does
// not have, and for choices that are not allowed.
void check_mixed_options(const plan::MixedPlan& base, const Options& options);

}  // namespace orrery::search
