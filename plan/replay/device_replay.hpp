// SPDX-License-Identifier: Apache-2.0
// One pipeline device of replay/memory_replay.hpp: its states, passes and optimizer steps through
// the caching allocator. Parameters of a unit are gathered ahead (Execution::gathers_in_flight) and
// gradients reduced behind, as pytorch/pytorch torch/distributed/fsdp does.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "plan/block/memory.hpp"
#include "plan/block/states.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/stage/sliced.hpp"
#include "sim/caching_allocator.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

using Buffer = sim::CachingAllocator::BlockId;

// One chain position of a stage.
struct Position {
  const BlockMemory* memory = nullptr;
  StateBytes states;
  std::int64_t whole = 0;    // elements before ZeRO
  std::int64_t trained = 0;  // of them
  std::int64_t experts = 0;  // of those, of experts, and their part that this device updates
  std::int64_t local_experts = 0;
  bool gathered = false;    // ZeRO-3
  bool reduced = false;     // ZeRO-2 and 3
  bool end = false;         // embedding or head
  bool frozen = false;      // forward only
  std::int64_t packed = 0;  // bytes of the buffer of its gather
  // Elements of a token table that blocks of the device share, bytes of the buffer of its gather,
  // and whether this block is the one that has it.
  std::int64_t table = 0;
  std::int64_t packed_table = 0;
  bool has_table = false;
  bool stays_packed = false;  // passes read that buffer
  std::int64_t columns = 0;   // bytes that the backward makes of it
  std::int64_t fetched = 0;   // bytes of its shard that a pass fetches from host or disk
  int ranks_inside = 1;       // of those that share its states, inside a node
  std::vector<std::int64_t> tensors() const;  // elements of its trained weights
  double part(double amount) const;           // of one of their elements in `amount`
};

// Buffers of a block that are live after its forward, in order of allocation, up to the share of
// their bytes that leaves, of the groups that leave; the output, which the next block takes over,
// and the keys and values of a slice stay.
std::vector<MemoryEvent> leaving_buffers(const BlockMemory& memory, const Offload& offload);

// A slice of a micro-batch, or all of it, at one chain position.
struct SlicePosition {
  const BlockMemory* memory = nullptr;
  std::int64_t keys = 0;               // keys and values that recomputation does not bring back
  std::int64_t context_gradients = 0;  // of its keys and values, begun by the last slice
  // Saved tensors that leave the device between the passes, with their bytes (activation offload).
  std::vector<MemoryEvent> leaving;
};

struct StageReplay {
  std::vector<Position> positions;
  std::vector<std::vector<SlicePosition>> slices;  // by slice, or Unit::cost, and position
  // Of a copy of a frozen encoder that runs in idle times: portions of a micro-batch; else 0.
  std::uint32_t portions = 0;
  // Whole micro-batches leave for the host and return, with so many buffers each way; 0: they stay.
  std::uint32_t leaving = 0;
  std::uint32_t coming = 0;
  bool recomputed = false;  // forwards keep their input alone and run again
  int versions = 1;         // of its parameters, which asynchronous schedules keep
};

// The buffers of one micro-batch, or a slice of it, in one stage.
struct Live {
  std::vector<std::vector<Buffer>> buffers;  // per position
  std::vector<Buffer> keys;                  // per position, with slices
  std::vector<Buffer> context_gradients;
  Buffer output = -1;
  Buffer input = -1;    // all but that of the next line a forward keeps that a recompute repeats
  Buffer carried = -1;  // what travels beside the stream, for all blocks (plan/block/carried.hpp)
  std::set<Buffer> for_weight_grads;  // kept from B to W of a cut backward
};

class DeviceReplay {
 public:
  DeviceReplay(const Plan& plan, const MemoryFacts& facts, std::int64_t capacity)
      : plan_(plan), facts_(facts), memory_({facts.expandable_segments, capacity}) {}

  std::map<int, StageReplay> stages;
  std::vector<Unit> units;       // of micro-batches that are not alike; empty: slices come in turn
  bool stops_when_full = false;  // as soon as it does not fit; peaks are those so far
  double place = 0;              // among the ranks that share its states: 0 the first, 1 the last
  // Once all stages are there: a token table that several blocks use is gathered by itself.
  void share_tables();
  // Whether these ranks update different parameters, and how many they are.
  std::int64_t differing_ranks() const;
  // Of parameters, gradients and optimizer states alone.
  std::int64_t reserved_by_states();
  MemoryPeak run(const std::vector<sim::Pass>& passes);

 private:
  std::int64_t sum(ByteCount StateBytes::*part) const;
  // Elements of the parameters that this rank updates, in the order in which it does.
  std::vector<std::int64_t> local_elements() const;
  std::vector<std::int64_t> contiguous_elements(bool experts) const;
  bool cuts_buffer() const;  // ZeRO-1 or less with contiguous shards
  // A buffer per local parameter, `bytes` each; or one for the device.
  std::vector<Buffer> allocate_local(int bytes, bool flat);
  void allocate_master();
  void allocate_moments();
  // The same for tensors that every rank holds whole, unless they are sharded as parameters are.
  std::vector<Buffer> allocate_whole(ByteCount (*of)(const StateBytes&));
  void allocate_frozen();
  void allocate_cast_weights();
  void allocate_versions();
  void release_all(std::vector<Buffer>& blocks);
  void allocate_states();
  // The whole model first; then unit by unit a flat copy, of which the shard is kept.
  void shard_parameters();
  void finish_states();
  bool has_master() const;
  bool flat_optimizer() const;
  // cuBLAS workspace of a handle and stream (pytorch/pytorch CUDABlas: 32 MiB from Hopper on, else
  // 8 MiB and 128 KiB).
  std::int64_t workspace_bytes() const;
  void run_pass(const sim::Pass& pass);
  void apply(const std::vector<MemoryEvent>& events, std::vector<Buffer>& buffers);
  // The same for B of a cut backward: what W reads is kept.
  void apply_cut(const BlockMemory& memory, std::vector<Buffer>& buffers,
                 std::set<Buffer>& for_weight_grads);
  // Whether an event asks for a buffer that is kept for ever; makes it the first time.
  bool keep(const MemoryEvent& event);
  static Buffer take(std::vector<Buffer>& buffers, std::int32_t index);
  bool in_root(const Position& position) const;
  std::int64_t gathered_bytes(const Position& position) const;  // without a shared table
  // What the gather of a shared table fills.
  std::int64_t table_bytes(const Position& position) const;
  // Gathered parameters of a unit; the buffers of the next ones are there before it is used, so
  // many that Execution::gathers_in_flight units are whole.
  void gather(const Position& position);
  void prefetch(const std::vector<Position>& positions, std::size_t index, bool backward);
  bool is_gathered_for_pass(const Position& position) const;
  // The buffer that the gather fills, beside the shard that was fetched for it.
  void begin_gather(const Position& position);
  // Buffers of quantised exchanges of whole gradients, freed before the shard is there.
  void exchange_quantised(std::int64_t whole, const Position* unit);
  void free_unit();
  // The same behind a forward and a backward of a position: without resharding after the forward a
  // unit stays until no micro-batch in flight needs it.
  void end_forward(const Position& position);
  void end_backward(const Position& position);
  // Units that stay whole as long as any of their parts is in use: embedding and head where they
  // form the root, a token table of several blocks.
  void gather_root();
  Unit unit_of(int stage, std::uint32_t unit) const;
  const SlicePosition& at(int stage, std::uint32_t unit, std::size_t position) const;
  // Gradients of the keys and values of all slices before the last one, whose backward this is.
  void begin_context_gradients(int stage, std::uint32_t unit, std::size_t position);
  // With `runs_again` it keeps its input alone, for the pass that runs it again.
  void forward(int stage, std::uint32_t micro_batch, bool runs_again);
  // What travels beside the stream: received by the first block, or made by one that does not keep
  // it for the blocks behind; at the end of the forward it goes unless something will read it.
  void receive_carried(const BlockMemory& memory, Live& live);
  void make_carried(const BlockMemory& memory, Live& live);
  void end_carried(int stage, std::uint32_t micro_batch, bool runs_again);
  // Frees what a position's forward made but the output, of the first position all but the input.
  void keep_input(const BlockMemory& memory, bool first, std::vector<Buffer>& buffers,
                  Buffer& input);
  // Whole, or `cut`: B alone.
  void backward(int stage, std::uint32_t micro_batch, bool cut);
  void begin_block_backward(int stage, std::uint32_t micro_batch, std::size_t index);
  void end_backward_pass(int stage, std::uint32_t micro_batch, Buffer gradient, bool cut);
  // Gradients between stages, with the ones that the schedule's variables hold on to
  // (MemoryFacts::held_gradients).
  Buffer receive_gradient(std::int64_t bytes, bool cut);
  void send_gradient(Buffer gradient, bool cut);
  void release_held();
  void weight_grad(int stage, std::uint32_t micro_batch);
  // A micro-batch through a frozen encoder; its features stay to the end of the next iteration.
  void frozen_forward(int stage, std::uint32_t portion);
  // Gradients that are allocated when the first backward of a step makes them.
  // Copies of a block's saved tensors to the host end while the next block runs; they are fetched
  // while the block before them in the backward runs.
  void evict(const SlicePosition& part, std::vector<Buffer>& buffers);
  void restore(const SlicePosition& part, std::vector<Buffer>& buffers);
  void begin_gradients();
  // Micro-batches that the schedule copies: the one that has left when another begins its forward,
  // and the one that may come back when another has ended its backward.
  void leave(int stage, std::uint32_t begins);
  void come_back(int stage, std::uint32_t ended);
  bool any_reduced() const;
  // Whole gradients of a unit become its shard; the buffer of the reduction lives until the next
  // one (pytorch/pytorch torch/distributed/fsdp, foreach_reduce).
  // `memory` numbered the buffers: that of the pass, a slice's or the whole micro-batch's.
  void reduce(const Position& position, const BlockMemory& memory, std::vector<Buffer>& buffers);
  void scatter(std::int64_t whole, std::int64_t sharded, const Position* unit,
               std::vector<Buffer>& gradients);
  void finish_roots();
  void step(bool first);

  const Plan& plan_;
  const MemoryFacts& facts_;
  sim::CachingAllocator memory_;
  std::map<std::pair<int, std::uint32_t>, Live> live_;
  std::map<int, std::uint32_t> ended_;  // backwards of an iteration, of stages that copy
  std::vector<Buffer> features_;        // for the next iteration
  std::vector<Buffer> used_features_;   // of this one
  std::vector<Buffer> outputs_;         // of the last stage (MemoryFacts::keeps_last_outputs)
  std::vector<Buffer> gradients_;
  std::vector<Buffer> low_gradients_;
  std::set<std::pair<std::int32_t, std::int64_t>> kept_;  // buffers that are left to all blocks
  Buffer received_ = -1;  // the gradient that the last backward received, and that it sent
  Buffer sent_ = -1;
  struct ComingUnit {
    const Position* of = nullptr;
    Buffer fetched = -1;
    Buffer gathered = -1;
  };
  std::deque<ComingUnit> coming_;  // in the order of their use
  Buffer unit_ = -1;
  Buffer columns_ = -1;
  struct HeldUnit {
    Buffer unit = -1;
    int micro_batches = 0;
  };
  std::map<const Position*, HeldUnit> held_units_;
  Buffer root_ = -1;
  Buffer reducing_ = -1;
  std::vector<Buffer> root_gradients_;
  std::int64_t root_elements_ = 0;
  std::int64_t root_sharded_ = 0;
  std::set<const Position*> has_shard_;  // units with a gradient in this step
};

}  // namespace orrery::plan
