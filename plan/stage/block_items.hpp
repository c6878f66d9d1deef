// SPDX-License-Identifier: Apache-2.0
// The blocks of a stage in the order they run, each with its data-parallel traffic, and passes of
// them beside that traffic (plan/stage/program.hpp).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/stage/program.hpp"
#include "plan/stage/shared_output.hpp"
#include "plan/stage/stage.hpp"

namespace orrery::plan {

struct BlockItem {
  SimTime forward;
  SimTime backward;
  Seconds gather;
  Seconds gather_backward;
  Seconds reduce;
  ByteCount gradient;       // bytes that `reduce` is for
  bool gathers_every_pass;  // ZeRO-3
  bool reduces_every_pass;  // ZeRO-2 and 3, so that gradients stay sharded
  SimTime conversion{};     // of the backward, to another layout
  Seconds pass_gather() const { return gathers_every_pass ? gather : Seconds(); }
  Seconds step_gather() const { return gathers_every_pass ? Seconds() : gather; }
  Seconds pass_reduce() const { return reduces_every_pass ? reduce : Seconds(); }
  Seconds step_reduce() const { return reduces_every_pass ? Seconds() : reduce; }
};
using GatherOf = Seconds (BlockItem::*)() const;

Seconds total(const std::vector<BlockItem>& items, GatherOf part);

// Whether what happens once a step is simulated, too.
enum class StepEnds : std::uint8_t { LeftOut, Simulated };

// Collectives between shards of embedding and head run beside the layers
// (plan/stage/pass_costs.hpp); what else the shards cost counts with the first block of them.
ShardTimes shard_times(const StagePiece& piece, const Plan& plan, const BlockCosts& costs,
                       const Slice& slice, bool is_first);
// Forward and backward of a block.
std::pair<SimTime, SimTime> pass_times(const StagePiece& piece, const BlockCost& block,
                                       const ShardTimes& shared);

// Blocks of a stage in order; a change of layout between two of them costs the later one. Shards of
// embedding and head lie side by side on a device, but no tensor goes from one to the other.
// What conversions and copies take is added to `stage`.
std::vector<BlockItem> items_of(const StageContent& content, const Plan& plan, BlockCosts& costs,
                                const Slice& slice, StepEnds ends, StageCost& stage);

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
BackwardOptions backward_options(const std::vector<BlockItem>& items, const Execution& execution);

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
