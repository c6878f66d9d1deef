// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/stage.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "plan/block/quantised_casts.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/amax.hpp"
#include "plan/stage/block_items.hpp"
#include "plan/stage/joined.hpp"
#include "plan/stage/offload_time.hpp"

namespace orrery::plan {

namespace {

void add_shards(const ShardTimes& shared, StageCost& stage) {
  stage.shard_collectives += shared.collectives;
  stage.forward_cost.compute += shared.forward + shared.backward - shared.collectives -
                                shared.tensor_forward - shared.tensor_backward;
  constexpr auto kTensor = static_cast<std::size_t>(Axis::Tensor);
  stage.forward_cost.exposed[kTensor] += shared.tensor_forward;
  stage.backward_cost.exposed[kTensor] += shared.tensor_backward;
}

// Kernels of a shard compute; what a block cut by tensor parallelism alone would wait for does not
// occur.
PassCost cost_of(const StagePiece& piece, PassCost pass) {
  if (piece.across_stages) {
    pass.exposed = {};
  }
  return pass;
}

void simulate_passes(const std::vector<BlockItem>& items, const Plan& plan, const BlockCosts& costs,
                     StepEnds ends, StageCost& stage) {
  const Execution& execution = plan.execution;
  const bool gathers = total(items, &BlockItem::pass_gather).value() > 0;
  const Seconds every = total(items, &BlockItem::pass_reduce);
  const Seconds once = total(items, &BlockItem::step_reduce);
  BackwardOptions options = backward_options(items, execution);
  if (gathers) {
    const SimTime forward =
        gathered_forward(items, costs, &BlockItem::pass_gather, options.limit).compute;
    stage.exposed_data_forward = to_seconds(forward - stage.forward);
    stage.forward = forward;
  }
  const SimTime alone = stage.backward;
  if (!execution.overlap_grad_reduce) {
    if (options.gather) {
      std::vector<BlockItem> unreduced = items;
      for (BlockItem& item : unreduced) {
        item.reduce = Seconds();
      }
      stage.backward = repeated_backward(unreduced, costs, options);
    }
    stage.backward += to_sim_time(every);
    stage.last_backward = stage.backward;
    stage.reduce_tail = to_sim_time(once);
  } else {
    if (options.gather || every.value() > 0) {
      stage.backward = repeated_backward(items, costs, options);
    }
    stage.last_backward = stage.backward;
    if (once.value() > 0 && ends == StepEnds::Simulated) {
      options.last = true;
      const auto last = backward_with_traffic(items, costs, options);
      stage.last_backward = std::max(last.compute, stage.backward);
      stage.reduce_tail = std::max(SimTime{}, last.data - stage.last_backward);
    }
  }
  stage.exposed_data_backward = to_seconds(stage.backward - alone);
  stage.reduce_total = to_sim_time(once);
}

}  // namespace

std::size_t gathers_in_flight(const Execution& execution) {
  constexpr std::size_t kAnyNumber = std::size_t{1} << 30;
  return execution.gathers_in_flight == 0 ? kAnyNumber
                                          : static_cast<std::size_t>(execution.gathers_in_flight);
}

void DeviceBuffers::add(const PassBuffers& stage) {
  const auto add = [](ByteCount& sum, ByteCount one, bool both) {
    sum = both ? sum + one : std::max(sum, one);
  };
  add(sum_.gathered, stage.gathered, joins_ || stay_);
  add(sum_.one_block, stage.one_block, joins_);
  add(sum_.working, stage.working, false);
}

namespace {

// The most that so many consecutive blocks take, of which the others' bytes are free.
ByteCount most_of_consecutive(const std::vector<ByteCount>& blocks, std::size_t count) {
  ByteCount most;
  ByteCount sum;
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    sum += blocks[block];
    if (block >= count) {
      sum -= blocks[block - count];
    }
    most = std::max(most, sum);
  }
  return most;
}

int stage_blocks(const StageContent& content) {
  int blocks = 0;
  for (const StagePiece& piece : content) {
    blocks += piece.count;
  }
  return blocks;
}

}  // namespace

int blocks_on_device(const StageContent& content, const Execution& execution) {
  const bool fetches = std::any_of(content.begin(), content.end(), [](const StagePiece& piece) {
    return piece.layout.offload.parameters != Tier::Device;
  });
  const auto blocks = static_cast<std::size_t>(stage_blocks(content));
  return fetches ? static_cast<int>(std::min(blocks, gathers_in_flight(execution)))
                 : kOffloadBuffers;
}

namespace {

SimTime weight_casts(const StagePiece& piece, const BlockCost& block, const Mesh& mesh,
                     const BlockCosts& costs) {
  return to_sim_time(costs.scaled(CostClass::MemoryBound,
                                  weight_casts_of_step(block, piece.layout, mesh, costs.precision(),
                                                       costs.device(), costs.execution())));
}

}  // namespace

void hand_on(std::vector<StageCost>& stages) {
  for (std::size_t stage = 0; stage + 1 < stages.size(); ++stage) {
    if (stages[stage + 1].takes_carried) {
      stages[stage].boundary += stages[stage].carried;
      stages[stage].carried = ByteCount();  // a second call adds nothing
    }
  }
}

StageCost add_up_blocks(const StageContent& content, const Plan& plan, BlockCosts& costs,
                        const Slice& slice) {
  StageCost stage;
  const bool joins = schedule_traits(plan).joins_passes;
  const bool like_layers = joins && has_like_layers(plan);
  std::vector<ByteCount> gathered;  // by block
  ByteCount largest_away;
  CarriedOnce carried;
  for (const StagePiece& piece : content) {
    const BlockCost& block =
        costs.of(piece.block, piece.layout, micro_batch_of(piece, plan), slice);
    const Mesh mesh = mesh_of(piece.layout, data_ranks_of(piece, plan));
    const StateBytes states = state_bytes(block, piece.layout, mesh, plan.execution, plan.precision,
                                          piece.table_elsewhere, plan.cluster.node.gpus);
    const ShardTimes shared = shard_times(piece, plan, costs, slice, &piece == &content.front());
    const auto [forward, backward] = pass_times(piece, block, shared);
    add_times(stage.forward, forward, piece.count);
    add_times(stage.backward, backward, piece.count);
    if (joins && is_layer(piece, costs.network())) {
      stage.most_hidden += most_hidden(block, like_layers) * piece.count;
    }
    for (int index = 0; index < piece.count; ++index) {
      stage.forward_cost = stage.forward_cost + cost_of(piece, block.forward);
      // In the order they run.
      stage.backward_cost = cost_of(piece, block.backward) + stage.backward_cost;
      stage.recompute += block.recompute.compute;
      const ByteCount away = away_bytes(piece, block, costs.network());
      (is_layer(piece, costs.network()) ? stage.saved : stage.saved_ends) += block.saved - away;
      const bool on_disk = piece.layout.offload.activations_tier == Tier::Disk;
      (on_disk ? stage.saved_disk : stage.saved_host) += away;
      largest_away = std::max(largest_away, away);
      stage.context_gradients += block.context_gradients;
      stage.states += states;
    }
    gathered.insert(gathered.end(), static_cast<std::size_t>(piece.count), states.gathered);
    stage.weight_casts += weight_casts(piece, block, mesh, costs) * piece.count;
    if (piece.across_stages) {
      add_shards(shared, stage);
    }
    stage.buffers.working = std::max(stage.buffers.working, block.working);
    stage.buffers.one_block = std::max(stage.buffers.one_block, states.of_one_block());
    stage.boundary = block.boundary;
    stage.carried = block.carried.bytes;
    stage.takes_carried = stage.takes_carried || block.carried.taken;
    carried.add(block.carried);
  }
  stage.saved += carried.saved();
  if (like_layers) {
    const std::vector<BlockCosts::LayerRun> layers = joined_layers(content, plan, costs);
    stage.most_hidden = costs.joined_stages(layers, layers).hidden;
  }
  stage.last_backward = stage.backward;
  stage.gathered_forward = stage.forward;
  stage.buffers.gathered = most_of_consecutive(gathered, plan.execution.reshard_after_forward
                                                             ? gathers_in_flight(plan.execution)
                                                             : gathered.size());
  stage.copied = largest_away * kOffloadBuffers;
  return stage;
}

StageCost add_up_stage(const StageContent& content, const Plan& plan, BlockCosts& costs,
                       const Slice& slice) {
  StageCost stage = add_up_blocks(content, plan, costs, slice);
  wait_for_amax(amax_reductions(content, plan, costs, slice), plan.execution, stage);
  return stage;
}

namespace {

StageCost simulate_stage(const StageContent& content, const Plan& plan, BlockCosts& costs,
                         const Slice& slice, StepEnds ends) {
  StageCost stage = add_up_blocks(content, plan, costs, slice);
  stage.simulated = true;
  stage.joined_layers = joined_layers(content, plan, costs);
  if (content.empty()) {
    return stage;
  }
  const std::vector<BlockItem> items = items_of(content, plan, costs, slice, ends, stage);
  stage.forward += to_sim_time(stage.relayout_forward);
  stage.backward += to_sim_time(stage.relayout_backward);
  simulate_passes(items, plan, costs, ends, stage);
  stage.gathered_forward = stage.forward;
  if (slice.is_whole()) {  // slices first exchange work (plan/stage/sliced.hpp)
    add_offload(content, plan, costs, slice, stage);
  }
  const Seconds gather = total(items, &BlockItem::step_gather);
  stage.gather_total = to_sim_time(gather);
  if (gather.value() > 0 && plan.execution.overlap_param_gather && ends == StepEnds::Simulated) {
    const auto first = gathered_forward(items, costs, &BlockItem::step_gather, items.size());
    stage.gathered_forward = std::max(stage.gathered_forward, first.compute);
  }
  wait_for_amax(amax_reductions(content, plan, costs, slice), plan.execution, stage);
  return stage;
}

}  // namespace

StageCost simulate_stage(const StageContent& content, const Plan& plan, BlockCosts& costs,
                         const Slice& slice) {
  return simulate_stage(content, plan, costs, slice, StepEnds::Simulated);
}

StageCost simulate_stage_within_step(const StageContent& content, const Plan& plan,
                                     BlockCosts& costs, const Slice& slice) {
  return simulate_stage(content, plan, costs, slice, StepEnds::LeftOut);
}

}  // namespace orrery::plan
