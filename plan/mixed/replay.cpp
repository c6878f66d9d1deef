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
      const int index = static_cast<int>(pool);
      if (!group.uses(index)) {
        continue;
      }
      Plan view = pool_view(plan, pool);
      set_view(plan, group.micro_batches, view);
      set_ranks(plan, group, index, view);
      view.memory_reserve = reserve;
      std::vector<MemoryPeak> peaks = replay_memory(view, {}, jobs);
      for (std::size_t device = 0; device < peaks.size(); ++device) {
        const std::vector<int> kinds = group.pools_of(device);
        if (std::find(kinds.begin(), kinds.end(), index) == kinds.end()) {
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
