// SPDX-License-Identifier: Apache-2.0
// What a thread of the per-block search works with: costs, simulations, bounds and drafts.
#pragma once

#include "search/per_block_bound.hpp"
#include "search/per_block_draft.hpp"

namespace orrery::search {

struct PerBlockTools {
  explicit PerBlockTools(const PerBlockSpace& space)
      : pricer(space),
        simulator(space.homogeneous().base()),
        bounds(space, simulator),
        drafter(space, simulator, pricer.costs()) {}
  BlockPricer pricer;
  plan::Simulator simulator;
  PipelineBounds bounds;
  Drafter drafter;
};

}  // namespace orrery::search
