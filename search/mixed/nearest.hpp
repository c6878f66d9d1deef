// SPDX-License-Identifier: Apache-2.0
// When nothing fits on a cluster of several kinds of nodes: single changes after which some plan
// does (nearest_change.hpp). Tried, in this order: leaving out one of --fix, the memory reserve,
// and for every pool the fewest nodes more (to an eighth of them), then the GPU of its vendor
// with the least memory above its own.
#pragma once

#include <string>
#include <vector>

#include "search/mixed/search.hpp"

namespace orrery::search {

struct MixedNearestChange {
  std::string change;  // "16 nodes of hgx-h100 instead of 4"
  plan::MixedPlan plan;
};

struct MixedNearestChanges {
  std::vector<MixedNearestChange> found;
  std::vector<std::string> left_open;  // as of one kind of nodes
};

// `base` is that of a search with `options` that found nothing, which took so long.
MixedNearestChanges nearest_changes(const Problem& problem, const plan::MixedPlan& base,
                                    const Options& options, Seconds searched = {});

}  // namespace orrery::search
