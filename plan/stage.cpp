// SPDX-License-Identifier: Apache-2.0
#include "plan/stage.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "sim/engine.hpp"

namespace orrery::plan {

namespace {

struct BlockItem {
  SimTime forward;
  SimTime backward;
  Seconds reduce;
  Seconds gather;
};

// Blocks of a stage in order with their data-parallel traffic.
std::vector<BlockItem> items_of(const StageContent& content, const Plan& plan, BlockCosts& costs,
                                StageCost& total, bool without_tied) {
  std::vector<BlockItem> items;
  for (const StagePiece& piece : content) {
    const BlockCost& block = costs.of(piece.block, piece.layout, plan.micro_batch);
    const Mesh mesh = mesh_of(piece.layout, plan.dp);
    const StateTraffic traffic = state_traffic(block, piece.layout, mesh, costs, without_tied);
    total.data_between_nodes = total.data_between_nodes || traffic.between_nodes;
    items.insert(items.end(), static_cast<std::size_t>(piece.count),
                 BlockItem{block.forward.time, block.backward.time, traffic.reduce,
                           traffic.gather});
  }
  return items;
}

models::BlockKind kind_of(const StagePiece& piece, const models::Network& network) {
  return network.blocks[static_cast<std::size_t>(piece.block)].kind;
}

bool is_layer(const StagePiece& piece, const models::Network& network) {
  return kind_of(piece, network) == models::BlockKind::Layer;
}

// A compute stream of blocks with gathers before and reductions after them on a second stream.
class StageProgram {
 public:
  explicit StageProgram(const costmodel::DeviceModel& device)
      : compute_(program_.add_stream(0, sim::StreamKind::Compute, "compute")),
        data_(program_.add_stream(0, sim::StreamKind::Collective, "data")),
        processors_(program_.add_resource(1.0, "streaming multiprocessors")),
        beside_(collective_demand(device)) {}

  sim::NodeId add_block(SimTime time) {
    const sim::Demand demand{processors_, 1.0};
    return program_.add_shared_work(compute_, SimTime{}, to_seconds(time), {&demand, 1}, {});
  }
  sim::NodeId add_collective(Seconds time) {
    const sim::Demand demand{processors_, beside_};
    return program_.add_shared_work(data_, SimTime{}, time, {&demand, 1}, {});
  }
  void depend(sim::NodeId consumer, sim::NodeId producer) { program_.depend(consumer, producer); }

  struct Ends {
    SimTime compute;
    SimTime data;
  };
  Ends run() {
    program_.finalize();
    const sim::Timeline timeline = sim::run(program_);
    ORRERY_CHECK(!timeline.deadlock, "a stage's blocks wait for each other");
    return {end_of(timeline, compute_), end_of(timeline, data_)};
  }

 private:
  SimTime end_of(const sim::Timeline& timeline, sim::StreamId stream) const {
    const auto nodes = program_.nodes_of(stream);
    return nodes.empty() ? SimTime{} : timeline.end[nodes.back()];
  }

  sim::Program program_;
  sim::StreamId compute_;
  sim::StreamId data_;
  sim::ResourceId processors_;
  double beside_;
};

// Forward with every block's parameters gathered before it. `limit` bounds gathered blocks.
StageProgram::Ends gathered_forward(const std::vector<BlockItem>& items, const BlockCosts& costs,
                                    int limit, bool prefetch) {
  StageProgram program(costs.device());
  std::vector<sim::NodeId> blocks;
  for (std::size_t index = 0; index < items.size(); ++index) {
    const sim::NodeId gather = program.add_collective(items[index].gather);
    const std::size_t ahead = prefetch ? static_cast<std::size_t>(limit) : 1;
    if (index >= ahead) {
      program.depend(gather, blocks[index - ahead]);
    }
    blocks.push_back(program.add_block(items[index].forward));
    program.depend(blocks.back(), gather);
  }
  return program.run();
}

struct BackwardOptions {
  bool gather = false;
  bool prefetch = true;
  bool reduce = true;
};

// Backward, last block first: gather of the next block is issued before the reduction of this one.
StageProgram::Ends backward_with_traffic(const std::vector<BlockItem>& items,
                                         const BlockCosts& costs,
                                         const BackwardOptions& options) {
  StageProgram program(costs.device());
  const std::size_t count = items.size();
  std::vector<sim::NodeId> gathers(count, sim::kNone);
  std::vector<sim::NodeId> blocks;
  const auto gather = [&](std::size_t position) {  // 0 is the last block of the stage
    gathers[position] = program.add_collective(items[count - 1 - position].gather);
    const std::size_t ahead = options.prefetch ? kGathersInFlight : 1;
    if (position >= ahead) {
      program.depend(gathers[position], blocks[position - ahead]);
    }
  };
  if (options.gather && count > 0) {
    gather(0);
  }
  for (std::size_t position = 0; position < count; ++position) {
    const BlockItem& item = items[count - 1 - position];
    blocks.push_back(program.add_block(item.backward));
    if (options.gather) {
      program.depend(blocks.back(), gathers[position]);
      if (position + 1 < count) {
        gather(position + 1);
      }
    }
    if (options.reduce) {
      program.depend(program.add_collective(item.reduce), blocks.back());
    }
  }
  return program.run();
}

void simulate_sharded_parameters(const std::vector<BlockItem>& items, const Plan& plan,
                                 const BlockCosts& costs, StageCost& stage) {
  const bool prefetch = plan.execution.overlap_param_gather;
  const bool keep = !plan.execution.reshard_after_forward;
  const auto forward = gathered_forward(items, costs, kGathersInFlight, prefetch);
  stage.exposed_data_forward = to_seconds(forward.compute - stage.forward);
  stage.forward = forward.compute;
  const auto backward = backward_with_traffic(items, costs, {!keep, prefetch, true});
  // The stream must be empty before it gathers for the next pass.
  const SimTime end = std::max(backward.compute, backward.data);
  stage.exposed_data_backward = to_seconds(end - stage.backward);
  stage.backward = end;
  stage.last_backward = end;
  stage.reduce_tail = SimTime{};
  stage.gathered_forward = stage.forward;
}

void simulate_reduction(const std::vector<BlockItem>& items, const Plan& plan,
                        const BlockCosts& costs, bool every, StageCost& stage) {
  if (stage.reduce_total.ps == 0) {
    return;
  }
  if (!plan.execution.overlap_grad_reduce) {
    if (every) {
      stage.exposed_data_backward = to_seconds(stage.reduce_total);
      stage.backward += stage.reduce_total;
      stage.last_backward = stage.backward;
    } else {
      stage.reduce_tail = stage.reduce_total;
    }
    return;
  }
  const auto ends = backward_with_traffic(items, costs, {false, true, true});
  stage.last_backward = ends.compute;
  stage.reduce_tail = std::max(SimTime{}, ends.data - ends.compute);
  if (every) {
    const SimTime end = std::max(ends.compute, ends.data);
    stage.exposed_data_backward = to_seconds(end - stage.backward);
    stage.backward = end;
    stage.last_backward = end;
    stage.reduce_tail = SimTime{};
  }
}

}  // namespace

bool holds_embedding(const StageContent& content, const models::Network& network) {
  return std::any_of(content.begin(), content.end(), [&](const StagePiece& piece) {
    return kind_of(piece, network) == models::BlockKind::Embedding;
  });
}

bool reduces_every_micro_batch(const StageContent& content) {
  return content.front().layout.zero_stage >= 2;
}

std::vector<StageContent> stage_contents(const Plan& plan) {
  std::vector<StageContent> stages;
  std::size_t position = 0;
  for (const int blocks : plan.stage_blocks) {
    StageContent content;
    for (int index = 0; index < blocks; ++index, ++position) {
      const int block = plan.network.chain[position];
      const BlockPlan& layout = plan.layout_of(static_cast<int>(position));
      if (!content.empty() && content.back().block == block && content.back().layout == layout) {
        ++content.back().count;
      } else {
        content.push_back({block, layout, 1});
      }
    }
    stages.push_back(std::move(content));
  }
  return stages;
}

StageCost add_up_stage(const StageContent& content, const Plan& plan, BlockCosts& costs) {
  StageCost stage;
  const bool without_tied = holds_embedding(content, costs.network());
  ByteCount all_gathered;
  ByteCount largest_gathered;
  ByteCount largest_unreduced;
  for (const StagePiece& piece : content) {
    const BlockCost& block = costs.of(piece.block, piece.layout, plan.micro_batch);
    const Mesh mesh = mesh_of(piece.layout, plan.dp);
    const StateBytes states = state_bytes(block, piece.layout, mesh, plan.execution,
                                          plan.precision, without_tied);
    for (int index = 0; index < piece.count; ++index) {
      stage.forward_cost = stage.forward_cost + block.forward;
      stage.backward_cost = stage.backward_cost + block.backward;
      (is_layer(piece, costs.network()) ? stage.saved : stage.saved_ends) += block.saved;
      stage.states += states;
      all_gathered += states.gathered;
    }
    stage.working = std::max(stage.working, block.working);
    largest_gathered = std::max(largest_gathered, states.gathered);
    largest_unreduced = std::max(largest_unreduced, states.unreduced);
    stage.boundary = block.boundary;
  }
  stage.forward = stage.forward_cost.time;
  stage.backward = stage.backward_cost.time;
  stage.last_backward = stage.backward;
  stage.gathered_forward = stage.forward;
  stage.gathered = plan.execution.reshard_after_forward
                       ? std::min(all_gathered, largest_gathered * kGathersInFlight)
                       : all_gathered;
  stage.gathered += largest_unreduced;
  return stage;
}

StageCost simulate_stage(const StageContent& content, const Plan& plan, BlockCosts& costs) {
  StageCost stage = add_up_stage(content, plan, costs);
  if (content.empty()) {
    return stage;
  }
  const bool without_tied = holds_embedding(content, costs.network());
  const std::vector<BlockItem> items = items_of(content, plan, costs, stage, without_tied);
  Seconds reduce;
  Seconds gather;
  for (const BlockItem& item : items) {
    reduce += item.reduce;
    gather += item.gather;
  }
  stage.reduce_total = to_sim_time(reduce);
  const int zero_stage = content.front().layout.zero_stage;
  if (zero_stage == 3) {
    simulate_sharded_parameters(items, plan, costs, stage);
    return stage;
  }
  simulate_reduction(items, plan, costs, reduces_every_micro_batch(content), stage);
  stage.gather_total = to_sim_time(gather);
  if (gather.value() > 0 && plan.execution.overlap_param_gather) {
    stage.gathered_forward =
        gathered_forward(items, costs, static_cast<int>(items.size()), true).compute;
  }
  return stage;
}

}  // namespace orrery::plan
