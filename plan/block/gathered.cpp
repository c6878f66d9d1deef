// SPDX-License-Identifier: Apache-2.0
#include "plan/block/gathered.hpp"

#include "plan/block/operator_replay.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {

using models::Operator;

GatheredCopies::GatheredCopies(const BlockContext& context)
    : weights_wait_(context.layout.keep_gathered),
      by_operator_(context.block.operators.size(), GatheredCopy::Dropped),
      made_anew_(context.block.tensors.size(), false) {
  if (!wait(context)) {
    return;
  }
  const models::Block& block = context.block;
  const bool layer = block.kind == models::BlockKind::Layer;
  const bool products = layer && context.layout.recompute == Recompute::Products;
  const bool operators = layer && context.layout.recompute == Recompute::Operators;
  const OperatorReplay replay = operators ? replay_of(context) : OperatorReplay();
  const std::vector<bool> runs = runs_again(context);
  for (std::size_t index = 0; index < block.operators.size(); ++index) {
    const Operator& op = block.operators[index];
    // Per-operator checkpointing keeps results of products, not what these gathered.
    by_operator_[index] = runs[index] ? GatheredCopy::FromReplay
                          : products  ? GatheredCopy::Dropped
                                      : GatheredCopy::FromForward;
    for (const int output : op.outputs) {
      made_anew_[slot_of(output)] = operators && runs[index] && !replay.kept[slot_of(output)];
    }
  }
}

GatheredCopy GatheredCopies::of_input(std::size_t index, int tensor) const {
  const GatheredCopy copy = by_operator_[index];
  return copy == GatheredCopy::FromForward && made_anew_[slot_of(tensor)] ? GatheredCopy::Dropped
                                                                          : copy;
}

}  // namespace orrery::plan
