// SPDX-License-Identifier: Apache-2.0
// Conversion of the residual stream between neighbouring blocks of different layouts
// (Rule 3 of layout.hpp between consecutive maps): a slice is free, fewer
// shards are gathered, batch shards traded for sequence shards are exchanged all-to-all. The
// gradient takes the adjoint.
#pragma once

#include "plan/block_cost.hpp"

namespace orrery::plan {

struct Relayout {
  Seconds forward;
  Seconds backward;
};

// From the block before (its local output is `before` bytes) to the next (`after` bytes).
Relayout relayout(const Plan& plan, const BlockPlan& from, ByteCount before, const BlockPlan& to,
                  ByteCount after, const BlockCosts& costs);

}  // namespace orrery::plan
