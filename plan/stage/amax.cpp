// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/amax.hpp"

#include <algorithm>

namespace orrery::plan {

namespace {

// A product has scales of its input, weight and output, and of the gradients of output and input,
// one fp32 number each.
constexpr double kForwardBytes = 12;
constexpr double kBackwardBytes = 8;

bool takes_part(Axis axis, AmaxRanks ranks) {
  const bool model = is_tensor_axis(axis) || axis == Axis::Context || axis == Axis::ContextHeads;
  return ranks == AmaxRanks::All || (ranks == AmaxRanks::Model && model);
}

}  // namespace

AmaxReductions amax_reductions(const StageContent& content, const Plan& plan, BlockCosts& costs,
                               const Slice& slice) {
  const Execution& execution = plan.execution;
  AmaxReductions amax;
  if (plan.precision != DType::Fp8 || execution.fp8_scaling != Fp8Scaling::Delayed) {
    return amax;
  }
  double products = 0;
  double trained = 0;  // of them, with a backward
  for (const StagePiece& piece : content) {
    const BlockCost& block =
        costs.of(piece.block, piece.layout, micro_batch_of(piece, plan), slice);
    if (block.quantised.count > 0 && products == 0) {
      amax.mesh = mesh_of(piece.layout, data_ranks_of(piece, plan));
    }
    const double count = block.quantised.count * piece.count;
    const bool frozen = plan.network.blocks[static_cast<std::size_t>(piece.block)].frozen;
    products += count;
    trained += frozen ? 0 : count;
  }
  if (products == 0) {
    return amax;
  }
  for (const Axis axis : kAxes) {
    if (amax.mesh.of(axis) > 1 && takes_part(axis, execution.amax_ranks)) {
      amax.axes.push_back(axis);
    }
  }
  if (amax.axes.empty()) {
    return amax;
  }
  const bool of_data_ranks = execution.amax_ranks == AmaxRanks::All;
  const BlockCosts& pricing = of_data_ranks ? costs.data_costs() : costs;
  const auto group = group_of(amax.mesh, amax.axes, pricing.cluster().node.gpus);
  // Those of all chunks of the device travel together.
  const auto time = [&](double bytes) {
    return pricing.scaled(group, pricing.collectives().time(sim::CommKind::AllReduce,
                                                            Bytes(bytes * plan.chunks), group));
  };
  amax.forward = time(kForwardBytes * products);
  amax.backward = trained > 0 ? time(kBackwardBytes * trained) : Seconds();
  return amax;
}

void wait_for_amax(const AmaxReductions& amax, const Execution& execution, StageCost& stage) {
  const SimTime forward = to_sim_time(amax.forward);
  const SimTime backward = to_sim_time(amax.backward);
  stage.forward += forward;
  stage.gathered_forward += forward;
  stage.backward += backward;
  stage.last_backward += backward;
  stage.amax += amax.forward + amax.backward;
  if (execution.overlap_grad_reduce) {
    stage.reduce_tail -= std::min(stage.reduce_tail, backward);
  }
}

}  // namespace orrery::plan
