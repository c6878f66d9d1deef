// SPDX-License-Identifier: Apache-2.0
#include "plan/mixed/replay.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/replay/memory_replay.hpp"

namespace orrery::plan {

MemoryVerdict replayed_verdict(const MixedPlan& plan, ByteCount reserve, int jobs) {
  MemoryVerdict worst;
  for (const ReplicaGroup& group : plan.groups) {
    for (std::size_t pool = 0; pool < plan.num_pools(); ++pool) {
      const auto is_here = [&](int other) { return other == static_cast<int>(pool); };
      if (std::none_of(group.pools.begin(), group.pools.end(), is_here)) {
        continue;
      }
      Plan view = pool_view(plan, pool);
      set_view(plan, group.micro_batches, view);
      view.memory_reserve = reserve;
      std::vector<MemoryPeak> peaks = replay_memory(view, {}, jobs);
      for (std::size_t device = 0; device < peaks.size(); ++device) {
        if (!is_here(group.pools[device])) {
          peaks[device] = {};
        }
      }
      MemoryVerdict verdict = replayed_verdict(view, peaks);
      if (!verdict.fits && (worst.fits || verdict.excess > worst.excess)) {
        worst = std::move(verdict);
        worst.text += fmt::format("; pool \"{}\"", plan.machine->cluster.pools[pool].name);
      }
    }
  }
  return worst;
}

}  // namespace orrery::plan
