// SPDX-License-Identifier: Apache-2.0
// The ways in which a group of embedding tables can be cut over a cluster.
#pragma once

#include <vector>

#include "plan/recommender/recommender.hpp"

namespace orrery::search {

// Whole tables, columns in 2, 4, ... slices of at least 32 elements, rows over all ranks or over
// those of a node, and copies on every rank, as far as tables are large enough; a stated one alone.
std::vector<plan::TableGroup> table_variants(const plan::TableGroup& group,
                                             const topologies::Cluster& cluster);

}  // namespace orrery::search
