// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/parameter_broadcasts.hpp"

#include <algorithm>

#include "plan/block_rules.hpp"

namespace orrery::plan {

namespace {

std::int64_t num_weights(const models::Block& block) {
  return std::count_if(
      block.tensors.begin(), block.tensors.end(), [](const models::Tensor& tensor) {
        return tensor.kind == models::TensorKind::Weight && !tensor.tied && !tensor.frozen;
      });
}

}  // namespace

Seconds broadcast_rounds(const Plan& plan, const std::vector<StageContent>& stages,
                         const BlockCosts& costs) {
  std::int64_t tensors = 0;
  costmodel::GroupShape group;
  for (const StageContent& content : stages) {
    for (const StagePiece& piece : content) {
      if (piece.layout.zero_stage == 0 || piece.layout.zero_stage == 3) {
        continue;
      }
      const models::Block& block = plan.network.blocks[static_cast<std::size_t>(piece.block)];
      tensors += num_weights(block) * piece.count;
      group = group_of(mesh_of(piece.layout, data_ranks_of(piece, plan)), {Axis::Shard},
                       plan.cluster.node.gpus);
    }
  }
  const std::int64_t roots = std::min<std::int64_t>(tensors, group.ranks);
  if (roots < 2) {
    return Seconds();
  }
  const std::int64_t crossings = (roots - 1) / group.ranks_per_node;
  const double rounds =
      static_cast<double>(roots - 1 - crossings) + static_cast<double>(crossings) / group.nodes;
  return costs.scaled(group, costs.collectives().ring_latency(group)) * rounds;
}

}  // namespace orrery::plan
