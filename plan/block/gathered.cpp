// SPDX-License-Identifier: Apache-2.0
#include "plan/block/gathered.hpp"

#include <algorithm>

#include "plan/block/operator_replay.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {

GatheredCopies::GatheredCopies(const BlockContext& context)
    : by_operator_(context.block.operators.size(), GatheredCopy::Dropped),
      made_anew_(context.block.tensors.size(), false) {
  if (!context.layout.keep_gathered) {
    return;
  }
  const models::Block& block = context.block;
  const Recompute recompute =
      block.kind == models::BlockKind::Layer ? context.layout.recompute : Recompute::None;
  const std::vector<int> products =
      recompute == Recompute::Products ? kept_products(context) : std::vector<int>{};
  const OperatorReplay replay =
      recompute == Recompute::Operators ? replay_of(context) : OperatorReplay();
  for (std::size_t index = 0; index < block.operators.size(); ++index) {
    const std::vector<int>& outputs = block.operators[index].outputs;
    GatheredCopy& copy = by_operator_[index];
    switch (recompute) {
      case Recompute::None:
      case Recompute::Selective:  // attention's core alone runs again
        copy = GatheredCopy::FromForward;
        break;
      case Recompute::Full:
        copy = GatheredCopy::FromReplay;
        break;
      case Recompute::Products: {  // products of which all was kept do not run again
        const bool kept =
            !outputs.empty() && std::all_of(outputs.begin(), outputs.end(),
                                            [&](int o) { return contains(products, o); });
        copy = kept ? GatheredCopy::Dropped : GatheredCopy::FromReplay;
        break;
      }
      case Recompute::Operators:
        copy = replay.runs[index] ? GatheredCopy::FromReplay : GatheredCopy::FromForward;
        for (const int output : outputs) {
          made_anew_[slot_of(output)] = replay.runs[index] && !replay.kept[slot_of(output)];
        }
        break;
    }
  }
}

GatheredCopy GatheredCopies::of_input(std::size_t index, int tensor) const {
  const GatheredCopy copy = by_operator_[index];
  return copy == GatheredCopy::FromForward && made_anew_[slot_of(tensor)] ? GatheredCopy::Dropped
                                                                          : copy;
}

}  // namespace orrery::plan
