// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/end_conversions.hpp"

#include "plan/block/relayout.hpp"

namespace orrery::plan {

void add_end_conversions(const Plan& plan, BlockCosts& costs, std::vector<StageCost>& stages) {
  if (!shares_output_layer(plan)) {
    return;
  }
  const models::Network& network = plan.network;
  const auto block_at = [&](std::size_t position) { return network.chain[position]; };
  const auto is_layer = [&](std::size_t position) {
    return network.blocks[static_cast<std::size_t>(block_at(position))].kind ==
           models::BlockKind::Layer;
  };
  const auto boundary = [&](std::size_t position, const BlockPlan& layout) {
    return costs.of(block_at(position), layout, plan.micro_batch_of(layout)).boundary;
  };
  std::size_t position = 0;
  for (std::size_t stage = 0; stage < plan.stage_blocks.size(); ++stage) {
    for (int index = 0; index < plan.stage_blocks[stage]; ++index, ++position) {
      if (position + 1 == network.chain.size() || is_layer(position) == is_layer(position + 1)) {
        continue;
      }
      const BlockPlan& from = plan.layout_of(static_cast<int>(position));
      const BlockPlan& to = plan.layout_of(static_cast<int>(position) + 1);
      if (from == to) {
        continue;
      }
      const Relayout change =
          relayout(plan, from, boundary(position, from), to, boundary(position + 1, to), costs);
      // An embedding may end its stage: then the layer after it is in the next one.
      const bool next = !is_layer(position) && index + 1 == plan.stage_blocks[stage];
      StageCost& cost = stages[stage + (next ? 1 : 0)];
      cost.relayout_forward += change.forward;
      cost.relayout_backward += change.backward;
      cost.forward += to_sim_time(change.forward);
      cost.gathered_forward += to_sim_time(change.forward);
      cost.backward += to_sim_time(change.backward);
      cost.last_backward += to_sim_time(change.backward);
    }
  }
}

}  // namespace orrery::plan
