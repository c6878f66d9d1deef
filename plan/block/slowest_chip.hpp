// SPDX-License-Identifier: Apache-2.0
// Chips of one type differ in the energy that a FLOP takes them, so that under a power limit they
// run at different clocks, and a synchronous job runs at the pace of its slowest one. The kernel
// tables are of single chips, taken to be typical ones. SGEMM on five large installations varies by
// 8 % between the whiskers of a box plot (Sinha et al., SC 2022, arXiv 2208.11035); of a normal
// distribution those are 5.4 standard deviations apart. What lies outside is not counted: such
// chips are found and replaced. O(1).
#pragma once

#include "costmodel/profile.hpp"

namespace orrery::plan {

// Energy of a FLOP of the chip that is expected to need most among so many, over the typical one.
double hungriest_chip(int chips);

// `profile` of the slowest chip of a job. Where no power limit is known nothing changes.
costmodel::Profile slowest_chip(const costmodel::Profile& profile, int chips);

}  // namespace orrery::plan
