// SPDX-License-Identifier: Apache-2.0
// When nothing fits: single changes after which some plan does, each with such a plan. Tried, in
// this order: leaving out one of --fix (the plan found says what the field becomes: recomputation,
// a smaller micro-batch, ...), the memory reserve, --allow offload, the fewest nodes more (to an
// eighth of them), and, of all known GPUs of the vendor, the one with the least memory above this
// one's. Every change is searched until its first plan; one whose search takes too long counts as
// not found.
#pragma once

#include <string>
#include <vector>

#include "search/problem.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

struct NearestChange {
  std::string change;  // "recompute=full instead of recompute=none", "16 nodes instead of 4"
  plan::Plan plan;     // that fits then
};

// Empty when none of them helps. `base` is that of a search with `options` that found nothing.
std::vector<NearestChange> nearest_changes(const Problem& problem, const plan::Plan& base,
                                           const Options& options);

}  // namespace orrery::search
