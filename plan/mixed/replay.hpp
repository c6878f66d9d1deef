// SPDX-License-Identifier: Apache-2.0
// Whether a plan of a mixed cluster that fits by categories of memory also fits when its devices
// are replayed through the caching allocator (plan/replay/memory_replay.hpp). Every group of
// replicas is replayed once for each pool that it has stages on, and that pool's devices count.
// Schedules that plan with times make their lists from that pool's times alone.
#pragma once

#include "plan/mixed/plan.hpp"
#include "plan/simulation/simulate.hpp"

namespace orrery::plan {

// `reserve` is kept free on every card. The device that misses by most; `jobs` threads.
MemoryVerdict replayed_verdict(const MixedPlan& plan, ByteCount reserve, int jobs = 1);

}  // namespace orrery::plan
