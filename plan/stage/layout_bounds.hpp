// SPDX-License-Identifier: Apache-2.0
// Lower bounds on time and memory of all plans that share a layout of their blocks, for any cut
// into stages and any placement of a schedule. Both are sums of a few numbers per block, so a bound
// costs O(virtual stages) and no lists are made.
//
// Time: plan/stage/pipeline_floor.hpp, then the optimizer. Data-parallel traffic counts nothing,
// unless a ZeRO stage is named: what a pass gathers and reduces travels one after the other, so
// that no pass is shorter. Memory: states, and at the first backward of the run every virtual stage
// holds one micro-batch. Of plans that take no longer than T more is known: a micro-batch that
// virtual stage s has begun stays there for the forwards and gradients of s and all stages after
// it, L(s); the bytes held, integrated over the run, are at least m sum L(s) saved(s), so their
// peak is at least that over T (Little's law). For T of 1F1B this is what 1F1B holds; for a V
// placement, half of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/stage/pipeline_floor.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/transfers.hpp"

namespace orrery::plan {

inline constexpr double kRounding = 1.0 - 1e-12;  // of doubles must not pass the time itself

class LayoutBounds {
 public:
  // `plan` has one layout for all blocks; its cut, schedule and ZeRO stage do not matter.
  LayoutBounds(const Plan& plan, const std::vector<int>& zero_stages, BlockCosts& costs,
               SplitBackwards& splits);

  // For every cut and schedule; with `shares_ends` also those that cut embedding and head, with
  // `joins_passes` those that run a forward and a backward as one.
  Seconds least_time(bool shares_ends, bool joins_passes) const;
  // For every cut and schedule under one of the ZeRO stages (by index); with `recomputes` also
  // those whose lists run forwards again.
  ByteCount least_memory(std::size_t zero, bool recomputes) const;

  Seconds time(const std::vector<int>& stages, const StagePlacement& placement,
               TransferTimes& transfers) const;
  // Under one of the ZeRO stages, by index, with its traffic.
  Seconds time(const std::vector<int>& stages, const StagePlacement& placement,
               TransferTimes& transfers, std::size_t zero) const;
  // On the fullest device, by ZeRO stage.
  std::vector<ByteCount> memory(const std::vector<int>& stages, const StagePlacement& placement);
  // Of plans whose devices hold no more than `capacity`, which memory() does not exceed.
  Seconds time_within(const std::vector<int>& stages, const StagePlacement& placement,
                      std::size_t zero, ByteCount capacity);

 private:
  // Of ZeRO-2 and 3, in every pass.
  struct PassTraffic {
    SimTime forward;
    SimTime backward;
  };
  // Of one block of the chain.
  struct Block {
    SimTime forward;  // of all slices, where there are some
    SimTime backward;
    SimTime most_hidden;    // where it runs as one with a forward, whatever is recomputed
    SimTime slice_forward;  // the shortest
    SimTime slice_backward;
    ByteCount saved;
    ByteCount working;
    ByteCount boundary;
    bool end = false;         // embedding or head
    bool uses_table = false;  // of the embedding
    bool frozen = false;
    SimTime input_grad{-1};  // of the backward cut in two; negative: not asked for yet
    // By ZeRO stage, and by whether the device counts the token table elsewhere.
    std::vector<StateBytes> states[2];
    std::vector<PassTraffic> traffic;  // by ZeRO stage
  };
  Block bound_of(int index, BlockCosts& costs) const;
  void hold_states(const BlockCost& cost, Block& block) const;
  void count_blocks();
  void find_thriftiest();
  // Whether a block is in no stage of the placement.
  static bool is_apart(const Block& block, const StagePlacement& placement) {
    return (placement.shares_ends && block.end) || (placement.fills_frozen && block.frozen);
  }
  SimTime input_grad(std::size_t block);
  // Of every device: one micro-batch of all its virtual stages; and, of a whole run, what its
  // micro-batches hold integrated over time, in bytes x seconds.
  struct Activations {
    std::vector<ByteCount> least;
    std::vector<double> integral;
  };
  Activations activations(const std::vector<int>& stages, const StagePlacement& placement,
                          bool integrate);
  // Whether the token table of a device is counted, as share_table() tells it.
  class TablesOfDevices;
  // Of a virtual stage: states, and what passes have beside them, at least.
  struct FixedBytes {
    ByteCount held;
    PassBuffers buffers;
  };
  FixedBytes fixed_bytes_of(int first, int count, const StagePlacement& placement, std::size_t zero,
                            std::size_t device, TablesOfDevices& tables) const;
  // Everything else.
  std::vector<ByteCount> fixed_bytes(const std::vector<int>& stages,
                                     const StagePlacement& placement, std::size_t zero) const;
  // Of a stage, without what travels.
  StagePasses passes_of(int first, int count, const StagePlacement& placement) const;
  PassTraffic traffic_of(const BlockCost& cost, const Mesh& mesh, BlockPlan layout) const;
  PassTraffic traffic_of(int first, int count, std::size_t zero) const;
  // No ZeRO stage: without traffic.
  Seconds time_of(const std::vector<int>& stages, const StagePlacement& placement,
                  TransferTimes& transfers, std::optional<std::size_t> zero) const;
  Seconds optimizer(const std::vector<int>& stages, const StagePlacement& placement) const;
  // Whether `count` blocks from both positions on are the same, without a use of the token table,
  // which a device may count elsewhere: most stages are like the one before.
  bool alike(int first, int other, int count) const;
  // Positions [first, first + count) of the chain by block.
  template <typename Visit>
  void for_blocks(int first, int count, Visit visit) const;

  const Plan& plan_;
  const BlockCosts& costs_;
  SplitBackwards& splits_;
  std::vector<int> zero_stages_;
  const bool like_layers_;  // plan/stage/joined.hpp
  std::vector<Block> blocks_;
  std::vector<std::vector<int>> before_;  // by block: how many of it before a position
  std::size_t thriftiest_ = 0;            // ZeRO stage whose optimizer has least to do
};

// Passes of an iteration on a device in the mean, without data-parallel traffic: the busiest one
// has at least as many.
Seconds mean_work(const Plan& plan, BlockCosts& costs);

}  // namespace orrery::plan
