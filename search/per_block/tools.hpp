// SPDX-License-Identifier: Apache-2.0
// What a thread of the per-block search works with: costs, simulations, bounds and drafts.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "search/per_block/bound.hpp"
#include "search/per_block/draft.hpp"

namespace orrery::search {

// Where the program of a pipeline ended.
struct DraftOrigin {
  const StageMesh& mesh;
  const Pipeline pipeline;
  const MeshCosts& costs;
  const Shares& shares;
};

struct DraftAim {
  double best = 0;              // seconds of the best plan so far
  double promising = 0;         // drafts of less than this are improved
  std::function<int()> budget;  // simulations; asked before neighbours are looked at
  std::function<plan::MemoryVerdict(const plan::Plan&)> replay;
  // Bytes of each device when it is replayed; empty where that takes too long.
  std::function<std::vector<ByteCount>(const plan::Plan&)> peaks;
};

struct PerBlockTools {
  explicit PerBlockTools(const PerBlockSpace& space)
      : pricer(space),
        simulator(space.homogeneous().base()),
        bounds(space, simulator),
        drafter(space, simulator, pricer.costs()) {}
  // Where a draft would be the answer but for its replayed memory, it is made once more with so
  // much left free as it misses.
  std::optional<DraftResult> drafted(const PerBlockSpace& space, const DraftOrigin& origin,
                                     const DraftAim& aim);

  // Random neighbours of a draft that takes `aim.best` and fits when it is replayed: what is faster
  // and fits, too. The result does not fit where there is nothing.
  DraftResult annealed(const PerBlockSpace& space, const DraftOrigin& origin, const DraftAim& aim,
                       Draft draft, std::uint64_t seed);

  BlockPricer pricer;
  plan::Simulator simulator;
  PipelineBounds bounds;
  Drafter drafter;
};

}  // namespace orrery::search
