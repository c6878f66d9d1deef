// SPDX-License-Identifier: Apache-2.0
#include "plan/block/carried.hpp"

#include <algorithm>

#include "plan/block/kept.hpp"
#include "plan/block/operator_replay.hpp"
#include "plan/block/saved.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {

namespace {

using models::Operator;

// Products in 8 or 4 bits keep it as they cast it, each for itself.
bool is_read_again(const BlockContext& context) {
  const models::Block& block = context.block;
  const std::vector<bool> again = runs_again(context);
  for (std::size_t index = 0; index < block.operators.size(); ++index) {
    const Operator& op = block.operators[index];
    const bool for_weights =
        models::is_gemm(op) && models::gives_weight_gradient(block, op) && !keeps_cast(context, op);
    if (contains(op.inputs, block.memory) && (again[index] || for_weights)) {
      return true;
    }
  }
  return false;
}

bool is_kept(const BlockContext& context) {
  const Recompute recompute = context.layout.recompute;
  if (recompute == Recompute::Full || recompute == Recompute::Products) {
    return false;
  }
  if (recompute == Recompute::Operators) {
    return replay_of(context).kept[slot_of(context.block.memory)];
  }
  for (const std::vector<models::Saved>& own : kept_by_operators(context, recompute)) {
    if (std::any_of(own.begin(), own.end(), [&](const models::Saved& saved) {
          return saved.tensor == context.block.memory && keeps_tensor(context.block, saved);
        })) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool takes_carried(const models::Block& block) {
  return block.memory >= 0 &&
         std::none_of(block.operators.begin(), block.operators.end(),
                      [&](const Operator& op) { return contains(op.outputs, block.memory); });
}

Carried carried_by(const BlockContext& context) {
  Carried carried;
  const models::Block& block = context.block;
  if (block.memory < 0) {
    return carried;
  }
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  carried.bytes = tensor_bytes(context, block.memory, stream_layout(rules));
  carried.taken = takes_carried(block);
  carried.trained = !block.tensors[slot_of(block.memory)].frozen;
  carried.read_again = carried.taken && !block.frozen && is_read_again(context);
  carried.kept = !carried.taken && !block.frozen && is_kept(context);
  return carried;
}

}  // namespace orrery::plan
