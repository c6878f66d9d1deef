// SPDX-License-Identifier: Apache-2.0
// When nothing fits: single changes after which some plan does, each with such a plan. Tried, in
// this order: leaving out one of --fix (the plan found says what the field becomes; of fields with
// an order the nearest value with a plan: a smaller micro-batch, ...), the memory reserve, --allow
// offload, the fewest nodes more (to an eighth of them), and, of all known GPUs of the vendor, the
// one with the least memory above this one's. Every change is searched until its first plan, or for
// so much work, which is counted so that the answer is the same on every machine; what cannot hold
// parameters and optimizer is not searched. Of GPUs first the one that takes the closest plan as it
// is. A time limit of the search bounds the changes, too: they have what is left of it, at least a
// second.
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

struct NearestChanges {
  std::vector<NearestChange> found;
  // Kinds of change whose search took too long, and parts of them: "fewer than 22 nodes".
  std::vector<std::string> left_open;
};

// `nothing` is the outcome of a search of `base` with `options`. Where that was stopped early, only
// what its closest plan says is looked at.
NearestChanges nearest_changes(const Problem& problem, const plan::Plan& base,
                               const Options& options, const Outcome& nothing);

}  // namespace orrery::search
