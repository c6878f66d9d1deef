// SPDX-License-Identifier: Apache-2.0
// The steps of a tensor-parallel group whose ranks are not alike - shards of different sizes, GPUs
// of different speed - as one list that runs at the group's pace. Ranks have the same steps, each
// with times of its own. Every rank runs alone from the collective (or the wait for one) that
// starts a stretch of kernels to the one that ends it; in the list that stretch is the slowest
// rank's, and a collective takes the longest that any rank says.
//   No rank alone is slower than the list. Where nothing overlaps, the list takes exactly what all
//   ranks together take; where kernels run beside collectives, no less (tests/unit/plan/
//   group_steps_test.cpp runs all ranks as one program).
// O(ranks x steps).
#pragma once

#include <functional>
#include <vector>

#include "plan/block/steps.hpp"

namespace orrery::plan {

// `ranks` is not empty; one rank is returned as it is.
std::vector<Step> at_pace_of_group(const std::vector<const std::vector<Step>*>& ranks);
BlockSteps at_pace_of_group(const std::vector<BlockSteps>& ranks);

// Of replicas that share experts, each one list, the first as it runs beside the others. They wait
// for each other where tokens travel, nowhere else: a stretch of steps between two such exchanges
// takes each replica what `alone` says, and an exchange of the first one lasts longer by what the
// slowest of the replicas takes more to get there. What is behind the last exchange counts before
// the first, as that of the layer before. O(replicas x steps).
using StretchTime = std::function<Seconds(std::size_t replica, const std::vector<Step>& stretch)>;
std::vector<Step> waiting_for_replicas(const std::vector<const std::vector<Step>*>& replicas,
                                       const StretchTime& alone);

}  // namespace orrery::plan
