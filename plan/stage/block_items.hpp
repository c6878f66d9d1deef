// SPDX-License-Identifier: Apache-2.0
// The blocks of a stage one after the other, with parameter gathers and gradient reductions on
// their own stream beside them.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/block/cost.hpp"
#include "plan/plan.hpp"
#include "plan/stage/program.hpp"

namespace orrery::plan {

// One block of a stage with its data-parallel traffic.
struct BlockItem {
  SimTime forward;
  SimTime backward;
  Seconds gather;
  Seconds gather_backward;
  Seconds reduce;
  ByteCount gradient;       // bytes that `reduce` is for
  bool gathers_every_pass;  // ZeRO-3
  bool reduces_every_pass;  // ZeRO-2 and 3, so that gradients stay sharded
  Seconds pass_gather() const { return gathers_every_pass ? gather : Seconds(); }
  Seconds step_gather() const { return gathers_every_pass ? Seconds() : gather; }
  Seconds pass_reduce() const { return reduces_every_pass ? reduce : Seconds(); }
  Seconds step_reduce() const { return reduces_every_pass ? Seconds() : reduce; }
};
using GatherOf = Seconds (BlockItem::*)() const;

Seconds total(const std::vector<BlockItem>& items, GatherOf part);

// Forward with every block's parameters gathered before it, at most `limit` blocks ahead.
StageProgram::Ends gathered_forward(const std::vector<BlockItem>& items, const BlockCosts& costs,
                                    GatherOf gather_of, std::size_t limit);

struct BackwardOptions {
  bool gather = false;
  BackwardPrefetch prefetch = BackwardPrefetch::Pre;
  std::size_t limit = 2;
  bool last = false;       // of the step: everything is reduced
  ByteCount bucket;        // gradients are reduced when this much is ready
  ByteCount first_bucket;  // the same for the first reduction, where smaller
};

// Backward, last block first. Gathers and reductions are issued to one stream in the order in which
// the framework calls them: the gather of the next block before this block's gradients are computed
// (pre), after them but before their reduction (post), or when the next block asks for it (none).
StageProgram::Ends backward_with_traffic(const std::vector<BlockItem>& items,
                                         const BlockCosts& costs, const BackwardOptions& options);

// Every pass of a stage with ZeRO-2 or 3 blocks ends when its traffic has ended: the stream must be
// empty before it gathers for the next pass.
SimTime repeated_backward(const std::vector<BlockItem>& items, const BlockCosts& costs,
                          const BackwardOptions& options);

}  // namespace orrery::plan
