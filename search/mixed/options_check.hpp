// SPDX-License-Identifier: Apache-2.0
// What the search of mixed clusters is not asked for.
#pragma once

#include "search/tree/search.hpp"

namespace orrery::search {

// Error for choices of the search on one kind of nodes that the one on several does not have, and
// for those that are not allowed.
void check_mixed_options(const Options& options, DType precision);

}  // namespace orrery::search
