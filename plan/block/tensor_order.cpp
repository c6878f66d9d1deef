// SPDX-License-Identifier: Apache-2.0
// Which tensors of a block share a buffer, in which order operators run, and how tokens get to
// their experts.
#include <algorithm>

#include "plan/block/tensors.hpp"

namespace orrery::plan {

using models::Operator;
using models::OpKind;

namespace {

bool is_shared_expert(const Operator& op) { return op.role == models::OpRole::SharedExpert; }

}  // namespace

// Per-operator checkpointing keeps outputs one by one.
void BlockTensors::find_holders() {
  holder_.resize(block_.tensors.size());
  for (std::size_t slot = 0; slot < holder_.size(); ++slot) {
    holder_[slot] = static_cast<int>(slot);
  }
  if (!facts_.joined_outputs || !context_.execution.fused_projections ||
      context_.layout.recompute == Recompute::Products) {
    return;
  }
  for (const Operator& product : block_.operators) {
    for (std::size_t index = 0; index < block_.operators.size(); ++index) {
      const Operator& reader = block_.operators[index];
      const bool joined = models::is_gemm(product) && reader.kind == OpKind::Elementwise &&
                          product.outputs.size() > 1 && reader.inputs == product.outputs;
      for (std::size_t position = 1; joined && position < reader.inputs.size(); ++position) {
        const int tensor = reader.inputs[position];
        if (!moves(tensor, required(index, position)) &&
            !gathers(tensor, required(index, position))) {
          holder_[slot_of(tensor)] = product.outputs.front();
        }
      }
    }
  }
}

void BlockTensors::find_routed() {
  if (!facts_.routed_variables || context_.layout.recompute == Recompute::Products) {
    return;
  }
  for (std::size_t index = 0; index < block_.operators.size(); ++index) {
    const Operator& op = block_.operators[index];
    if (op.kind == OpKind::Permute && op.reduced.empty()) {
      routed_.dispatch = index;
      routed_.sent = op.outputs.front();
    } else if (op.kind == OpKind::GroupedGemm && contains(op.inputs, routed_.sent)) {
      routed_.experts = index;
    } else if (op.kind == OpKind::Permute) {
      routed_.combine = routed_.end = index;
      routed_.returned = op.inputs.front();
    } else if (routed_.returned >= 0 && !is_shared_expert(op) &&
               contains(op.inputs, block_.operators[routed_.combine].outputs.front()) &&
               std::any_of(block_.operators.begin(), block_.operators.end(), is_shared_expert)) {
      routed_.end = index;  // adds what shared experts made
    }
  }
  if (routed_.returned < 0 || routed_.experts == 0) {
    return;
  }
  const Layout there = required(routed_.experts, 0);
  const Layout back = required(routed_.combine, 0);
  routed_.exchanged = moves(routed_.sent, there) && moves(routed_.returned, back);
  routed_.quantised = routed_.exchanged && context_.execution.quantised_dispatch;
  routed_.sorted = local_experts(routed_.experts) > 1;
  routed_.holds = !gathers(routed_.sent, there) && !gathers(routed_.returned, back);
}

void BlockTensors::find_order() {
  std::vector<std::size_t> shared;
  for (std::size_t index = 0; index < block_.operators.size(); ++index) {
    (routed_.holds && is_shared_expert(block_.operators[index]) ? shared : order_).push_back(index);
  }
  order_.insert(std::find(order_.begin(), order_.end(), routed_.experts), shared.begin(),
                shared.end());
  rank_.resize(order_.size());
  for (std::size_t place = 0; place < order_.size(); ++place) {
    rank_[order_[place]] = place;
  }
}

void BlockTensors::find_attention() {
  attention_.holds = facts_.attention_variables;
  for (std::size_t index = 0; index < block_.operators.size(); ++index) {
    const Operator& op = block_.operators[index];
    if (op.kind == OpKind::Attention && attention_.core == AttentionLayer::kNone) {
      attention_.core = index;
    } else if (models::is_gemm(op) && attention_.core != AttentionLayer::kNone &&
               attention_.end == AttentionLayer::kNone) {
      attention_.end = index;
    }
  }
  const Recompute recompute = context_.layout.recompute;
  const bool by_tensor = recompute == Recompute::Products || recompute == Recompute::Operators;
  if (!facts_.attention_variables || by_tensor || !context_.execution.fused_projections ||
      !context_.execution.fused_attention || attention_.end == AttentionLayer::kNone) {
    return;
  }
  for (std::size_t index = 0; index < attention_.core; ++index) {
    const Operator& product = block_.operators[index];
    if (!is_split(product)) {
      continue;
    }
    const auto bytes = [&](int tensor) {
      return bytes_of(block_.tensors[slot_of(tensor)], produced_[slot_of(tensor)]);
    };
    const std::vector<int>& parts = product.outputs;
    attention_.split = index;
    attention_.split_value = parts.back();
    attention_.latent = parts.size() == 2;
    attention_.split_query =
        !attention_.latent && bytes(parts[0]) > bytes(parts[1]) ? parts[0] : -1;
  }
}

// Its last output is the value that attention reads, the others go through rotary positions.
bool BlockTensors::is_split(const Operator& product) const {
  if (!models::is_gemm(product) || product.outputs.size() < 2 ||
      block_.operators[attention_.core].inputs.back() != product.outputs.back()) {
    return false;
  }
  return std::all_of(product.outputs.begin(), product.outputs.end() - 1, [&](int part) {
    return std::all_of(block_.operators.begin(), block_.operators.end(), [&](const Operator& op) {
      return !contains(op.inputs, part) || op.role == models::OpRole::Rotary;
    });
  });
}

bool BlockTensors::is_view(int tensor) const {
  return attention_.split != AttentionLayer::kNone && tensor != attention_.split_query &&
         contains(block_.operators[attention_.split].outputs, tensor);
}

bool BlockTensors::is_routed(std::size_t index, int tensor) const {
  return routed_.holds && ((index == routed_.experts && tensor == routed_.sent) ||
                           (index == routed_.combine && tensor == routed_.returned));
}

}  // namespace orrery::plan
