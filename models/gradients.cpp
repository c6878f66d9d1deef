// SPDX-License-Identifier: Apache-2.0
// What frozen weights leave to the backward of a block.
#include <algorithm>

#include "models/operators.hpp"

namespace orrery::models {
namespace {

bool is_frozen(const Block& block, int tensor) {
  return block.tensors[static_cast<std::size_t>(tensor)].frozen;
}

bool any_trained(const Block& block, const std::vector<int>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](int tensor) { return !is_frozen(block, tensor); });
}

bool saves(const Operator& op, int tensor) {
  return std::any_of(op.saved.begin(), op.saved.end(),
                     [tensor](const Saved& saved) { return saved.tensor == tensor; });
}

bool is_saved(const Block& block, int tensor) {
  return std::any_of(block.operators.begin(), block.operators.end(),
                     [tensor](const Operator& op) { return saves(op, tensor); });
}

bool is_made(const Block& block, int tensor) {
  return std::any_of(block.operators.begin(), block.operators.end(), [tensor](const Operator& op) {
    return std::find(op.outputs.begin(), op.outputs.end(), tensor) != op.outputs.end();
  });
}

Saved whole(const Block& block, int tensor) {
  return {.tensor = tensor, .element = block.tensors[static_cast<std::size_t>(tensor)].element};
}

void mark_activations(Block& block, bool input_gradient) {
  std::vector<bool> made(block.tensors.size(), false);
  for (const Operator& op : block.operators) {
    for (const int input : op.inputs) {
      const auto slot = static_cast<std::size_t>(input);
      const bool handed = input == block.input || input == block.memory;
      block.tensors[slot].frozen =
          made[slot] ? block.tensors[slot].frozen : !(input_gradient && handed);
    }
    const bool frozen = !has_backward(block, op);
    for (const int output : op.outputs) {
      made[static_cast<std::size_t>(output)] = true;
      block.tensors[static_cast<std::size_t>(output)].frozen = frozen;
    }
  }
}

// A product reads its input for the gradient of its weight alone; the input gradients of the others
// read what they keep.
void drop_unread(Block& block) {
  for (Operator& op : block.operators) {
    if (!has_backward(block, op)) {
      op.saved.clear();
    } else if (is_gemm(op) && !gives_weight_gradient(block, op)) {
      std::erase_if(op.saved, [&](const Saved& saved) {
        return std::find(op.inputs.begin(), op.inputs.end(), saved.tensor) != op.inputs.end();
      });
    }
    // Where the other summand's gradient ends, no two gradients meet at the fork behind it.
    const bool addition = op.kind == OpKind::Elementwise && op.pointwise && op.saved.empty();
    const bool one_sided = std::any_of(op.inputs.begin(), op.inputs.end(),
                                       [&](int input) { return is_frozen(block, input); });
    if (addition && one_sided) {
      op.backward_bytes_factor = 0.0;
    }
  }
}

// Inputs of trained products that no frozen one keeps any more. The backward of fused attention
// reads its result, which otherwise the product after it keeps.
void keep_read(Block& block) {
  for (Operator& op : block.operators) {
    if (is_gemm(op) && gives_weight_gradient(block, op)) {
      const int input = op.inputs.front();
      const bool taken = input == block.memory && !is_made(block, input);  // a stage keeps it once
      if (!taken && !is_saved(block, input)) {
        op.saved.push_back(whole(block, input));
      }
    }
  }
  for (Operator& op : block.operators) {
    if (op.kind == OpKind::Attention && has_backward(block, op) &&
        !is_saved(block, op.outputs.front())) {
      op.saved.push_back(whole(block, op.outputs.front()));
      op.saved.back().fused_only = true;
    }
  }
}

}  // namespace

bool is_gemm(const Operator& op) {
  return op.kind == OpKind::Gemm || op.kind == OpKind::GroupedGemm;
}

bool gives_input_gradient(const Block& block, const Operator& op) {
  return any_trained(block, op.inputs);
}

bool gives_weight_gradient(const Block& block, const Operator& op) {
  return any_trained(block, op.weights);
}

bool has_backward(const Block& block, const Operator& op) {
  return gives_input_gradient(block, op) || gives_weight_gradient(block, op);
}

void settle_gradients(Block& block, bool input_gradient) {
  mark_activations(block, input_gradient);
  drop_unread(block);
  keep_read(block);
  block.frozen = std::none_of(block.operators.begin(), block.operators.end(),
                              [&](const Operator& op) { return has_backward(block, op); });
}

}  // namespace orrery::models
