// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/block_items.hpp"

#include <algorithm>

#include "plan/block/relayout.hpp"

namespace orrery::plan {

Seconds total(const std::vector<BlockItem>& items, GatherOf part) {
  Seconds sum;
  for (const BlockItem& item : items) {
    sum += (item.*part)();
  }
  return sum;
}

ShardTimes shard_times(const StagePiece& piece, const Plan& plan, const BlockCosts& costs,
                       const Slice& slice, bool is_first) {
  if (!piece.across_stages || !is_first) {
    return {};
  }
  return kind_of(piece, costs.network()) == models::BlockKind::Head
             ? shared_output_times(plan, piece.barriers, costs, slice)
             : shared_input_times(plan, piece.barriers, costs, slice);
}

std::pair<SimTime, SimTime> pass_times(const StagePiece& piece, const BlockCost& block,
                                       const ShardTimes& shared) {
  if (!piece.across_stages) {
    return {block.forward.time, block.backward.time};
  }
  return {to_sim_time(block.forward.compute + shared.forward),
          to_sim_time(block.backward.compute + shared.backward)};
}

std::vector<BlockItem> items_of(const StageContent& content, const Plan& plan, BlockCosts& costs,
                                const Slice& slice, StepEnds ends, StageCost& stage) {
  std::vector<BlockItem> items;
  const StagePiece* previous = nullptr;
  for (const StagePiece& piece : content) {
    const BlockCost& block =
        costs.of(piece.block, piece.layout, micro_batch_of(piece, plan), slice);
    const Mesh mesh = mesh_of(piece.layout, data_ranks_of(piece, plan));
    const bool every_pass = piece.layout.zero_stage >= 2 || is_quantised(costs.precision());
    const StateTraffic traffic =
        ends == StepEnds::Simulated || every_pass
            ? state_traffic(block, piece.layout, mesh, costs, piece.table_elsewhere)
            : StateTraffic{};
    stage.data_between_nodes = stage.data_between_nodes || traffic.between_nodes;
    const std::size_t first = items.size();
    const auto [forward, backward] =
        pass_times(piece, block, shard_times(piece, plan, costs, slice, first == 0));
    items.insert(items.end(), static_cast<std::size_t>(piece.count),
                 BlockItem{forward + to_sim_time(traffic.copy_forward),
                           backward + to_sim_time(traffic.copy_backward), traffic.gather,
                           traffic.gather_backward, traffic.reduce, traffic.gradient,
                           piece.layout.zero_stage == 3, piece.layout.zero_stage >= 2});
    const auto add_copies = [&](Seconds copy, PassCost& cost, SimTime& pass) {
      cost.compute += copy * static_cast<double>(piece.count);
      pass += to_sim_time(copy) * piece.count;
    };
    add_copies(traffic.copy_forward, stage.forward_cost, stage.forward);
    add_copies(traffic.copy_backward, stage.backward_cost, stage.backward);
    if (previous != nullptr && previous->layout != piece.layout && !piece.across_stages) {
      const Relayout change = relayout(
          plan, costs, {previous->block, previous->layout, piece.block, piece.layout}, slice);
      items[first].forward += to_sim_time(change.forward);
      items[first].conversion = to_sim_time(change.backward);
      items[first].backward += items[first].conversion;
      stage.relayout_forward += change.forward;
      stage.relayout_backward += change.backward;
    }
    previous = &piece;
  }
  return items;
}

StageProgram::Ends gathered_forward(const std::vector<BlockItem>& items, const BlockCosts& costs,
                                    GatherOf gather_of, std::size_t limit) {
  StageProgram program(costs.device());
  std::vector<sim::NodeId> blocks;
  for (std::size_t index = 0; index < items.size(); ++index) {
    const sim::NodeId gather = program.add_collective((items[index].*gather_of)());
    if (index >= limit) {
      program.depend(gather, blocks[index - limit]);
    }
    blocks.push_back(program.add_block(items[index].forward));
    program.depend(blocks.back(), gather);
  }
  return program.run();
}

BackwardOptions backward_options(const std::vector<BlockItem>& items, const Execution& execution) {
  BackwardOptions options;
  options.gather =
      total(items, &BlockItem::pass_gather).value() > 0 && execution.reshard_after_forward;
  options.prefetch = execution.backward_prefetch;
  options.limit = execution.overlap_param_gather ? gathers_in_flight(execution) : 1;
  options.bucket = ByteCount(execution.bucket_bytes);
  options.first_bucket = ByteCount(execution.first_bucket_bytes);
  return options;
}

StageProgram::Ends backward_with_traffic(const std::vector<BlockItem>& items,
                                         const BlockCosts& costs, const BackwardOptions& options) {
  StageProgram program(costs.device());
  const std::size_t count = items.size();
  std::vector<sim::NodeId> gathers(count, sim::kNone);
  std::vector<sim::NodeId> blocks;
  const bool early = options.prefetch == BackwardPrefetch::Pre;
  const auto gather = [&](std::size_t position) {  // 0 is the last block of the stage
    gathers[position] = program.add_collective(items[count - 1 - position].gather_backward);
    if (early && position >= options.limit) {
      program.depend(gathers[position], blocks[position - options.limit]);
    } else if (!early && position > 0) {
      program.depend(gathers[position], blocks[position - 1]);
    }
  };
  if (options.gather && count > 0) {
    gather(0);
  }
  int reductions = 0;
  Seconds pending;  // reductions of the bucket being filled
  ByteCount bucket;
  for (std::size_t position = 0; position < count; ++position) {
    const BlockItem& item = items[count - 1 - position];
    blocks.push_back(program.add_block(item.backward));
    const bool gathers_next = options.gather && position + 1 < count;
    if (options.gather) {
      program.depend(blocks.back(), gathers[position]);
    }
    if (gathers_next && options.prefetch != BackwardPrefetch::None) {
      gather(position + 1);
    }
    pending += options.last ? item.reduce : item.pass_reduce();
    bucket += item.gradient;
    const bool small = reductions == 0 && options.first_bucket.value() > 0;
    const ByteCount full = small ? std::min(options.first_bucket, options.bucket) : options.bucket;
    if (bucket >= full || position + 1 == count) {
      program.depend(program.add_collective(pending), blocks.back());
      pending = Seconds();
      bucket = ByteCount();
      ++reductions;
    }
    if (gathers_next && options.prefetch == BackwardPrefetch::None) {
      gather(position + 1);
    }
  }
  return program.run();
}

SimTime repeated_backward(const std::vector<BlockItem>& items, const BlockCosts& costs,
                          const BackwardOptions& options) {
  const auto ends = backward_with_traffic(items, costs, options);
  return std::max(ends.compute, ends.data);
}

}  // namespace orrery::plan
