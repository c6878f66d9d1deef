// SPDX-License-Identifier: Apache-2.0
// What bounds know of every block of a network.
#include <algorithm>

#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/joined.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/offload_time.hpp"
#include "plan/stage/token_table.hpp"

namespace orrery::plan {

LayoutBounds::Block LayoutBounds::bound_of(int index, BlockCosts& costs) const {
  const models::Network& network = plan_.network;
  const BlockPlan& layout = plan_.blocks.front().layout;
  const std::vector<Slice> slices = slices_of(plan_);
  const std::int64_t micro_batch = plan_.micro_batch_of(layout, index);
  const auto runs = static_cast<std::int64_t>(runs_of_block(plan_, index));
  Block block;
  for (const Slice& slice : slices) {
    const BlockCost& part = costs.of(index, layout, micro_batch, slice);
    const bool first = slice.start == 0;
    const SimTime forward = part.forward.time;
    const SimTime backward = part.backward.time;
    block.forward += forward * runs;
    block.backward += backward * runs;
    block.most_hidden += most_hidden(part, like_layers_) * runs;
    block.slice_forward = first ? forward : std::min(block.slice_forward, forward);
    block.slice_backward = first ? backward : std::min(block.slice_backward, backward);
    block.saved += part.saved - away_bytes({.block = index, .layout = layout}, part, network);
    block.working = std::max(block.working, part.working);
    block.boundary = std::max(block.boundary, part.boundary);
  }
  const models::Block& described = network.blocks[static_cast<std::size_t>(index)];
  block.end = described.kind != models::BlockKind::Layer;
  block.uses_table = uses_table(described);
  block.frozen = described.frozen;
  hold_states(costs.of(index, layout, micro_batch, slices.front()), block);
  return block;
}

void LayoutBounds::hold_states(const BlockCost& cost, Block& block) const {
  const BlockPlan& layout = plan_.blocks.front().layout;
  const Mesh mesh = mesh_of(layout, plan_.data_ranks(layout));
  for (const bool without_tied : {false, true}) {
    for (const int zero : zero_stages_) {
      BlockPlan sharded = layout;
      sharded.zero_stage = zero;
      if (zero >= 2 && layout.offload.optimizer != Tier::Device) {
        sharded.offload.gradients = layout.offload.optimizer;  // least on the device
      }
      block.states[without_tied ? 1 : 0].push_back(state_bytes(cost, sharded, mesh, plan_.execution,
                                                               plan_.precision, without_tied,
                                                               plan_.cluster.node.gpus));
      if (without_tied) {
        block.traffic.push_back(traffic_of(cost, mesh, sharded));
      }
    }
  }
}

// A tied table may be another block's.
LayoutBounds::PassTraffic LayoutBounds::traffic_of(const BlockCost& cost, const Mesh& mesh,
                                                   BlockPlan layout) const {
  if (layout.zero_stage < 2 || plan_.slices > 1) {
    return {};
  }
  const StateTraffic all = state_traffic(cost, layout, mesh, costs_, /*without_tied=*/true);
  const bool gathers = layout.zero_stage == 3;
  const bool again = gathers && plan_.execution.reshard_after_forward;
  const auto least = [](Seconds time) { return to_sim_time(time * (1.0 - 1e-9)); };
  return {gathers ? least(all.gather) : SimTime{},
          least(all.reduce) + (again ? least(all.gather_backward) : SimTime{})};
}

void LayoutBounds::count_blocks() {
  const std::vector<int>& chain = plan_.network.chain;
  before_.assign(blocks_.size(), std::vector<int>(chain.size() + 1, 0));
  for (std::size_t position = 0; position < chain.size(); ++position) {
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      const bool here = chain[position] == static_cast<int>(block);
      before_[block][position + 1] = before_[block][position] + (here ? 1 : 0);
    }
  }
}

void LayoutBounds::find_thriftiest() {
  std::int64_t fewest = -1;
  for (std::size_t zero = 0; zero < zero_stages_.size(); ++zero) {
    std::int64_t parameters = 0;
    for (const Block& block : blocks_) {
      parameters += block.states[0][zero].local_parameters;
    }
    if (fewest < 0 || parameters < fewest) {
      fewest = parameters;
      thriftiest_ = zero;
    }
  }
}

Seconds mean_work(const Plan& plan, BlockCosts& costs) {
  SimTime work;
  const ScheduleTraits traits = schedule_traits(plan);
  const bool like_layers = traits.joins_passes && has_like_layers(plan);
  for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
    const int index = plan.network.chain[position];
    const models::Block& described = plan.network.blocks[static_cast<std::size_t>(index)];
    if (traits.shares_output_layer && described.kind != models::BlockKind::Layer) {
      continue;
    }
    const BlockPlan& layout = plan.layout_of(static_cast<int>(position));
    for (const Slice& slice : slices_of(plan)) {
      const BlockCost& block = costs.of(index, layout, plan.micro_batch_of(layout, index), slice);
      work += (block.forward.time + block.backward.time -
               (traits.joins_passes ? most_hidden(block, like_layers) : SimTime{})) *
              static_cast<std::int64_t>(runs_of_block(plan, index));
    }
  }
  const double share = static_cast<double>(plan.num_micro_batches()) / plan.pp;
  return to_seconds(work) * (share * kRounding);
}

}  // namespace orrery::plan
