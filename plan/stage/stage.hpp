// SPDX-License-Identifier: Apache-2.0
// One virtual stage of the pipeline: its run of blocks as one forward and one backward, with
// parameter gathers and gradient reductions on their own stream beside the blocks
// (docs/plan.md), and its bytes.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/block/cost.hpp"
#include "plan/block/states.hpp"

namespace orrery::plan {

// A run of equal blocks within a stage.
struct StagePiece {
  int block = 0;  // index into Network::blocks
  BlockPlan layout;
  int count = 1;
  bool across_stages = false;    // cut over all stages beside tp: `layout` says tp x pp
  int barriers = 0;              // of the shards of such a piece (ScheduleTraits::output_barriers)
  bool table_elsewhere = false;  // the device counts the token table that it uses in another one
  bool operator==(const StagePiece&) const = default;
};
using StageContent = std::vector<StagePiece>;

// Blocks whose offloaded tensors are on the device: one is used, the other comes or goes.
inline constexpr int kOffloadBuffers = 2;

// Blocks of a stage that its copies keep on the device: as many, or where parameters live elsewhere
// as many as may be whole at once (of what they saved, kOffloadBuffers all the same).
int blocks_on_device(const StageContent& content, const Execution& execution);

// FSDP's rate limiter: a gather starts when at most this many gathered blocks are unfreed.
std::size_t gathers_in_flight(const Execution& execution);

models::BlockKind kind_of(const StagePiece& piece, const models::Network& network);
bool is_layer(const StagePiece& piece, const models::Network& network);
// Any block: ZeRO-2 and 3 reduce every micro-batch, so that gradients stay sharded.
bool reduces_every_micro_batch(const StageContent& content);

// Samples of a micro-batch on a rank and the ranks that share the piece's states.
std::int64_t micro_batch_of(const StagePiece& piece, const Plan& plan);
int data_ranks_of(const StagePiece& piece, const Plan& plan);
// Whether the plan's schedule cuts embedding and head over all stages.
bool shares_output_layer(const Plan& plan);

// The block at a chain position as its device runs it.
StagePiece piece_at(const Plan& plan, int position);

// The pieces of every virtual stage of a plan, those of shards of embedding and head, or of copies
// of frozen blocks (plan/modules.hpp), or services (plan/stage/servers.hpp), last.
std::vector<StageContent> stage_contents(const Plan& plan);
// The same where the devices of the stages are known, which decide what shares a token table.
std::vector<StageContent> stage_contents(const Plan& plan,
                                         const std::vector<std::uint16_t>& device_of);
// The first stage that holds the same as this one: the stage itself where none before it does.
std::size_t first_equal(const std::vector<StageContent>& contents, std::size_t stage);

// What a virtual stage has on its device while a pass of it runs.
struct PassBuffers {
  ByteCount gathered;   // ZeRO-3: parameters of the blocks in flight (or all when kept)
  ByteCount one_block;  // ZeRO-2/3: gradients of a block before they are reduced, and weights cast
  ByteCount working;    // of the largest block
  ByteCount total() const { return gathered + one_block + working; }
  // Of each the larger: of two that run one after the other.
  PassBuffers larger(const PassBuffers& other) const {
    return {std::max(gathered, other.gathered), std::max(one_block, other.one_block),
            std::max(working, other.working)};
  }
};

// Of all virtual stages of a device. One runs at a time, so that the largest counts, but for
// parameters that stay after their forward and where two passes run as one.
class DeviceBuffers {
 public:
  DeviceBuffers(bool joins_passes, const Execution& execution)
      : joins_(joins_passes), stay_(!execution.reshard_after_forward) {}
  void add(const PassBuffers& stage);
  ByteCount total() const { return sum_.total(); }

 private:
  bool joins_;
  bool stay_;
  PassBuffers sum_;
};

struct StageCost {
  SimTime forward;   // of one micro-batch, ZeRO-3 gathers included
  int forwards = 1;  // of one micro-batch: 2 where a pass of its own runs it again
  SimTime backward;
  SimTime last_backward;  // with the gradient reduction of the step beside it
  // Where a forward and a backward run as one (plan/block/cost.hpp): what they are of, and of the
  // stage's part in it no less than is hidden, whatever stands beside.
  std::vector<BlockCosts::LayerRun> joined_layers;
  SimTime most_hidden;
  SimTime reduce_tail;  // of the reduction, after the last backward
  SimTime reduce_total;
  SimTime gathered_forward;  // first forward of a step, with ZeRO-1/2 gathers before it, or fetches
                             // of all parameters that live elsewhere
  SimTime gather_total;      // ZeRO-1/2 gathers of the step
  SimTime gathers_before;    // of the device's other virtual stages, on the same stream
  SimTime weight_casts;      // to fp8, of a step: in its first forward, or after an update
  PassCost forward_cost;     // sums over the blocks
  PassCost backward_cost;
  Seconds recompute;             // kernels of the backward that repeat the forward
  Seconds shard_collectives;     // of embedding and head cut over all stages, in their passes
  Seconds amax;                  // waiting for largest magnitudes, in both passes
  Seconds exposed_data_forward;  // waiting for parameters
  Seconds exposed_data_backward;
  Seconds exposed_data_cut;  // the same of a backward that is cut
  double cut_fraction = 0;   // of its backwards, in the schedule's lists
  Seconds relayout_forward;  // conversions between blocks of different layouts
  Seconds relayout_backward;
  bool simulated = false;  // with its data-parallel traffic
  bool data_between_nodes = false;
  Seconds exposed_offload_forward;  // waiting for copies to and from the host
  Seconds exposed_offload_backward;
  Seconds exposed_offload_first;  // in the first forward of a step, beyond the others
  ByteCount saved;                // by the layers, per micro-batch
  ByteCount saved_host;           // of it on the host and on disk
  ByteCount saved_disk;
  ByteCount saved_ends;  // by embedding and head, per micro-batch
  PassBuffers buffers;
  ByteCount copied;    // of what leaves, at most on the device while it goes or comes
  ByteCount boundary;  // of the last block, with what it carries where the next stage takes it
  ByteCount carried;   // by the last block (plan/block/carried.hpp)
  bool takes_carried = false;
  ByteCount context_gradients;  // of a slice, per micro-batch (plan/block/cost.hpp)
  StateBytes states{};
  ByteCount away() const { return saved_host + saved_disk; }  // of a micro-batch
  // Of `live` bytes that are away: no more are in buffers.
  ByteCount copied_of(ByteCount live) const { return std::min(copied, live); }
};

// Stages in the order of the chain: adds what the stream carries to the boundaries behind which it
// is read. One stage does not know what follows it.
void hand_on(std::vector<StageCost>& stages);

// Bytes, and times that need no simulation; exact where no data-parallel traffic is beside blocks.
// add_up_blocks leaves out what a pass of the stage waits for as a whole (plan/stage/amax.hpp).
StageCost add_up_blocks(const StageContent& content, const Plan& plan, BlockCosts& costs,
                        const Slice& slice = {});
StageCost add_up_stage(const StageContent& content, const Plan& plan, BlockCosts& costs,
                       const Slice& slice = {});
// Everything, simulated; of a slice without what it waits for copies to and from the host.
StageCost simulate_stage(const StageContent& content, const Plan& plan, BlockCosts& costs,
                         const Slice& slice = {});
// The same of a micro-batch that is neither the first nor the last of a step: what happens once a
// step is left out (`last_backward`, `gathered_forward`, reductions and gathers of the step).
StageCost simulate_stage_within_step(const StageContent& content, const Plan& plan,
                                     BlockCosts& costs, const Slice& slice = {});

}  // namespace orrery::plan
