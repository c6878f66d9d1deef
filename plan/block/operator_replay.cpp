// SPDX-License-Identifier: Apache-2.0
#include "plan/block/operator_replay.hpp"

#include <algorithm>

#include "plan/block/kept.hpp"

namespace orrery::plan {

std::vector<int> read_by_later_slices(const BlockContext& context) {
  std::vector<int> tensors;
  for (const models::Operator& op : context.block.operators) {
    if (op.kind == models::OpKind::Attention && !context.slice.is_whole()) {
      tensors.insert(tensors.end(), {op.inputs[1], op.inputs[2]});
    }
  }
  return tensors;
}

std::vector<int> kept_products(const BlockContext& context) {
  std::vector<int> kept = read_by_later_slices(context);
  int products = 0;
  for (const models::Operator& op : context.block.operators) {
    if (op.kind == models::OpKind::Attention) {
      kept.push_back(op.outputs.front());
    } else if (op.kind == models::OpKind::Gemm) {
      for (const int output : op.outputs) {
        const bool stays = std::find(kept.begin(), kept.end(), output) != kept.end();
        if (++products % 2 == 1 && !stays) {
          kept.push_back(output);
        }
      }
    }
  }
  return kept;
}

bool keeps_reduced_alone(const BlockContext& context, int tensor) {
  return context.layout.mesh() != TensorMesh::OneD &&
         std::any_of(context.block.operators.begin(), context.block.operators.end(),
                     [tensor](const models::Operator& op) {
                       return op.kind == models::OpKind::Gemm &&
                              std::find(op.outputs.begin(), op.outputs.end(), tensor) !=
                                  op.outputs.end();
                     });
}

OperatorReplay replay_of(const BlockContext& context) {
  const models::Block& block = context.block;
  const OperatorSet set =
      context.layout.recompute == Recompute::Operators ? context.layout.recomputed : OperatorSet();
  const std::vector<int> stay = read_by_later_slices(context);
  const auto slot = [](int tensor) { return static_cast<std::size_t>(tensor); };
  const auto stays = [&stay](int tensor) {
    return std::find(stay.begin(), stay.end(), tensor) != stay.end();
  };
  OperatorReplay result;
  result.runs.assign(block.operators.size(), false);
  result.loses.assign(block.operators.size(), false);
  result.kept.assign(block.tensors.size(), false);
  std::vector<bool> needed(block.tensors.size(), false);
  const auto kept_by_operator = kept_by_operators(context, context.layout.recompute);
  for (const std::vector<models::Saved>& own : kept_by_operator) {
    for (const models::Saved& saved : own) {
      needed[slot(saved.tensor)] = needed[slot(saved.tensor)] || keeps_tensor(block, saved);
    }
  }
  for (std::size_t index = block.operators.size(); index-- > 0;) {
    const models::Operator& op = block.operators[index];
    const OperatorGroup group = group_of(block, op);
    const bool whole = set.has(group);
    const bool core =
        group == OperatorGroup::Attention && set.has(OperatorGroup::AttentionCore) && !whole;
    const bool wanted = std::any_of(op.outputs.begin(), op.outputs.end(), [&](int output) {
      return needed[slot(output)] && !stays(output);
    });
    const bool all_stay =
        !op.outputs.empty() && std::all_of(op.outputs.begin(), op.outputs.end(), stays);
    const std::vector<models::Saved>& own = kept_by_operator[index];
    const bool keeps_more = std::any_of(own.begin(), own.end(), [&](const models::Saved& saved) {
      return !keeps_tensor(block, saved);
    });
    result.loses[index] = whole || core;
    result.runs[index] = core || (whole && (wanted || (keeps_more && !all_stay)));
    for (const int output : op.outputs) {
      result.kept[slot(output)] = stays(output) || (needed[slot(output)] && !whole);
    }
    if (result.runs[index]) {
      for (const int input : op.inputs) {
        needed[slot(input)] = true;
      }
    }
  }
  if (block.input >= 0) {  // what is carried beside it is the stage's (carried.hpp)
    result.kept[slot(block.input)] = needed[slot(block.input)];
  }
  return result;
}

std::vector<bool> runs_again(const BlockContext& context) {
  const models::Block& block = context.block;
  const Recompute recompute =
      block.kind == models::BlockKind::Layer ? context.layout.recompute : Recompute::None;
  std::vector<bool> runs(block.operators.size(), recompute == Recompute::Full);
  if (recompute == Recompute::Operators) {
    return replay_of(context).runs;
  }
  const std::vector<int> kept =
      recompute == Recompute::Products ? kept_products(context) : std::vector<int>{};
  for (std::size_t index = 0; index < runs.size(); ++index) {
    const models::Operator& op = block.operators[index];
    if (recompute == Recompute::Selective) {
      runs[index] = op.attention_core;
    } else if (recompute == Recompute::Products) {
      runs[index] =
          op.outputs.empty() || std::any_of(op.outputs.begin(), op.outputs.end(), [&](int output) {
            return std::find(kept.begin(), kept.end(), output) == kept.end();
          });
    }
  }
  return runs;
}

std::vector<double> shares_run_again(const BlockContext& context) {
  const models::Block& block = context.block;
  const std::vector<bool> runs = runs_again(context);
  const std::vector<int> kept =
      context.layout.recompute == Recompute::Products ? kept_products(context) : std::vector<int>{};
  std::vector<double> shares;
  for (std::size_t index = 0; index < runs.size(); ++index) {
    const std::vector<int>& outputs = block.operators[index].outputs;
    const auto stay = std::count_if(outputs.begin(), outputs.end(), [&](int output) {
      return std::find(kept.begin(), kept.end(), output) != kept.end();
    });
    const auto made = static_cast<double>(std::max<std::size_t>(1, outputs.size()));
    shares.push_back(runs[index] ? 1.0 - static_cast<double>(stay) / made : 0.0);
  }
  return shares;
}

}  // namespace orrery::plan
