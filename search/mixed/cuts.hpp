// SPDX-License-Identifier: Apache-2.0
// Cuts of a chain over pools: how many blocks each pool takes, and the cut of a run of blocks into
// stages whose slowest stage is fastest.
#pragma once

#include <cstdint>
#include <vector>

#include "search/mixed/space.hpp"

namespace orrery::search {

// All ways to write `total` as a sum with at least `least[i]` at place i, in ascending order.
std::vector<std::vector<int>> compositions(int total, const std::vector<int>& least);
std::int64_t num_compositions(std::int64_t total, const std::vector<int>& least);

// Positions [begin, end) as runs of one position or more, one for each stage, which takes what its
// chain says; exact, by bisection over the slowest stage, O(positions x log time).
std::vector<int> least_largest(const std::vector<const ChainTimes*>& stages, std::size_t begin,
                               std::size_t end);

}  // namespace orrery::search
