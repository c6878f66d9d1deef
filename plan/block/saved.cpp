// SPDX-License-Identifier: Apache-2.0
#include "plan/block/saved.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "plan/block/cost.hpp"
#include "plan/block/gathered.hpp"
#include "plan/block/kept.hpp"
#include "plan/block/operator_replay.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {

using models::Operator;
using models::Saved;
using models::Tensor;

namespace {

bool keeps(const Operator& op, int tensor) {
  return std::any_of(op.saved.begin(), op.saved.end(),
                     [tensor](const Saved& saved) { return saved.tensor == tensor; });
}

// As an operator reads a tensor; none where it is not among its inputs.
std::optional<Layout> read_by(const models::Block& block, const BlockRules& rules,
                              const Operator& op, int tensor) {
  const auto input = std::find(op.inputs.begin(), op.inputs.end(), tensor);
  if (input == op.inputs.end()) {
    return std::nullopt;
  }
  return required_input(op, block.tensors[static_cast<std::size_t>(tensor)],
                        static_cast<int>(input - op.inputs.begin()),
                        assign(block, op, rules.of(op)));
}

// Whether no operator reads or keeps more of a tensor over an axis. What blocks hand on is whole.
bool is_read_in_parts(const models::Block& block, const BlockRules& rules, int tensor, Axis axis) {
  if (tensor == block.input || tensor == block.output || tensor == block.memory) {
    return false;
  }
  return std::all_of(block.operators.begin(), block.operators.end(), [&](const Operator& op) {
    const std::optional<Layout> read = read_by(block, rules, op, tensor);
    return read ? (*read)[axis].is_sharded() : !keeps(op, tensor);
  });
}

ByteCount saved_bytes(const BlockContext& context, const BlockRules& rules, const Operator& op,
                      const Saved& saved, const std::vector<Layout>& produced) {
  const Tensor& tensor = context.block.tensors[static_cast<std::size_t>(saved.tensor)];
  const Layout layout = saved_layout(context.block, rules, op, saved.tensor, produced);
  const double elements =
      static_cast<double>(local_elements(tensor, layout, context.mesh, context.extents));
  return ByteCount(static_cast<std::int64_t>(elements * saved.copies) *
                   element_bytes(saved.element, context.precision));
}

}  // namespace

Layout saved_layout(const models::Block& block, const BlockRules& rules, const Operator& op,
                    int tensor, const std::vector<Layout>& produced) {
  const auto slot = static_cast<std::size_t>(tensor);
  const bool made =
      std::any_of(block.operators.begin(), block.operators.end(),
                  [tensor](const Operator& other) { return contains(other.outputs, tensor); });
  Layout layout = made || tensor == block.input
                      ? produced[slot]
                      : produced_output(op, block.tensors[slot], assign(block, op, rules.of(op)));
  const std::optional<Layout> read = read_by(block, rules, op, tensor);
  for (const Axis axis : kAxes) {
    const bool part = read && made && layout[axis].is_replicated() && (*read)[axis].is_sharded() &&
                      is_read_in_parts(block, rules, tensor, axis);
    // Exchanged for heads: those of a rank, which may share them with others.
    const bool exchanged = read && op.kind == models::OpKind::Attention &&
                           layout[axis].is_sharded() && (*read)[axis].is_sharded();
    if (read && (layout[axis].is_partial() || part || exchanged)) {
      layout.set(axis, (*read)[axis]);
    }
  }
  return layout;
}

ByteCount tensor_bytes(const BlockContext& context, int tensor, const Layout& layout) {
  if (tensor < 0) {
    return ByteCount();
  }
  const Tensor& value = context.block.tensors[static_cast<std::size_t>(tensor)];
  return ByteCount(local_elements(value, layout, context.mesh, context.extents)) *
         element_bytes(value.element, context.precision);
}

namespace {

// The block's input, the outputs that per-operator checkpointing keeps and what it communicated.
ByteCount saved_products(const BlockContext& context, const BlockRules& rules) {
  const std::vector<Layout> produced = produced_layouts(context.block, rules);
  ByteCount total = tensor_bytes(context, context.block.input, stream_layout(rules));
  std::vector<bool> moved(produced.size(), false);
  for (const Operator& op : context.block.operators) {
    const Assignment assignment = assign(context.block, op, rules.of(op));
    for (std::size_t position = 0; position < op.inputs.size(); ++position) {
      const auto slot = static_cast<std::size_t>(op.inputs[position]);
      const Layout read =
          required_input(op, context.block.tensors[slot], static_cast<int>(position), assignment);
      if (!moved[slot] && is_moved(produced[slot], read, context.mesh)) {
        moved[slot] = true;
        total += tensor_bytes(context, op.inputs[position], kept_layout(produced[slot], read));
      }
    }
  }
  for (const int tensor : kept_products(context)) {
    const auto slot = static_cast<std::size_t>(tensor);
    if (!moved[slot] || !keeps_reduced_alone(context, tensor)) {
      total += tensor_bytes(context, tensor, produced[slot]);
    }
  }
  return total;
}

// What a tensor takes in the layout in which its first reader keeps it.
ByteCount kept_bytes(const BlockContext& context, int tensor, const BlockRules& rules,
                     const std::vector<Layout>& produced) {
  for (const Operator& op : context.block.operators) {
    if (std::find(op.inputs.begin(), op.inputs.end(), tensor) != op.inputs.end()) {
      const Saved whole{.tensor = tensor,
                        .element = context.block.tensors[static_cast<std::size_t>(tensor)].element};
      return saved_bytes(context, rules, op, whole, produced);
    }
  }
  return tensor_bytes(context, tensor, produced[static_cast<std::size_t>(tensor)]);
}

// The backward of fused attention reads the result as attention wrote it (FlashAttention saves its
// output), the gradient of the next product's weight as that product read it. Where heads are
// exchanged for positions in between, both are kept; this is the former.
ByteCount exchanged_result(const BlockContext& context, const Operator& op,
                           const std::vector<Layout>& produced) {
  if (op.kind != models::OpKind::Attention || !context.execution.fused_attention ||
      !models::has_backward(context.block, op) || !keeps_both_results(context, op)) {
    return ByteCount();
  }
  const int result = op.outputs.front();
  const bool by_itself =  // where no product reads it for a gradient
      std::any_of(op.saved.begin(), op.saved.end(),
                  [result](const Saved& own) { return own.tensor == result; });
  return by_itself ? ByteCount()
                   : tensor_bytes(context, result, produced[static_cast<std::size_t>(result)]);
}

ByteCount& of(SavedByGroup& saved, OperatorGroup group) {
  return saved[static_cast<std::size_t>(group)];
}

}  // namespace

SavedByGroup saved_by_group(const BlockContext& context) {
  const models::Block& block = context.block;
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  const std::vector<Layout> produced = produced_layouts(block, rules);
  const std::vector<int> stay = read_by_later_slices(context);
  const OperatorReplay left = replay_of(context);
  SavedByGroup saved{};
  for (std::size_t tensor = 0; tensor < left.kept.size(); ++tensor) {
    const int index = static_cast<int>(tensor);
    if (left.kept[tensor] && std::find(stay.begin(), stay.end(), index) == stay.end()) {
      of(saved, maker_of(block, index)) += kept_bytes(context, index, rules, produced);
    }
  }
  for (std::size_t index = 0; index < block.operators.size(); ++index) {
    const Operator& op = block.operators[index];
    for (const Saved& own : kept_by(context, op, context.layout.recompute)) {
      if (!left.loses[index] && !keeps_tensor(block, own)) {
        of(saved, kept_with(block, op, own)) += saved_bytes(context, rules, op, own, produced);
      }
    }
    if (!left.loses[index]) {
      of(saved, group_of(block, op)) += exchanged_result(context, op, produced);
    }
  }
  return saved;
}

ByteCount saved_activations(const BlockContext& context, Recompute recompute) {
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  const bool layer = context.block.kind == models::BlockKind::Layer;
  if (recompute == Recompute::Full && layer) {
    return tensor_bytes(context, context.block.input, stream_layout(rules));
  }
  if (recompute == Recompute::Products && layer) {
    return saved_products(context, rules);
  }
  if (recompute == Recompute::Operators && layer) {
    const SavedByGroup saved = saved_by_group(context);
    const bool cut = !context.slice.is_whole();
    return std::accumulate(saved.begin(), saved.end(),
                           cut ? keys_and_values(context) : ByteCount());
  }
  const std::vector<Layout> produced = produced_layouts(context.block, rules);
  ByteCount total;
  for (const Operator& op : context.block.operators) {
    for (const Saved& saved : kept_by(context, op, recompute)) {
      total += saved_bytes(context, rules, op, saved, produced);
    }
    total +=
        recompute == Recompute::Selective ? ByteCount() : exchanged_result(context, op, produced);
  }
  return total;
}

namespace {

// Bytes of gathered copies by what becomes of them: those of weights and inputs that the backward
// reads (an input for the gradient of the weight, a weight for that of the input). Of dropped ones
// those of the operator with the largest, whatever its backward reads.
struct CopyBytes {
  ByteCount from_forward;
  ByteCount from_replay;
  ByteCount largest_dropped;
};

CopyBytes gathered_copies(const BlockContext& context) {
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  const std::vector<Layout> produced = produced_layouts(context.block, rules);
  const GatheredCopies copies(context);
  CopyBytes bytes;
  for (std::size_t index = 0; index < context.block.operators.size(); ++index) {
    const Operator& op = context.block.operators[index];
    const Assignment assignment = assign(context.block, op, rules.of(op));
    ByteCount dropped;
    // A gathered input takes the place of the part; the part of a weight stays where it is.
    const auto add = [&](int tensor, const Layout& stored, const Layout& used, bool weight,
                         GatheredCopy copy, bool read) {
      const ByteCount whole = tensor_bytes(context, tensor, used);
      const ByteCount part = tensor_bytes(context, tensor, stored);
      const ByteCount more = whole <= part ? ByteCount()
                             : weight      ? whole
                                           : beside_part(context, tensor, whole, part);
      dropped += copy == GatheredCopy::Dropped ? more : ByteCount();
      bytes.from_forward += copy == GatheredCopy::FromForward && read ? more : ByteCount();
      bytes.from_replay += copy == GatheredCopy::FromReplay && read ? more : ByteCount();
    };
    const bool reads_inputs = models::gives_weight_gradient(context.block, op);
    const bool reads_weights = models::gives_input_gradient(context.block, op);
    for (std::size_t position = 0; models::is_gemm(op) && position < op.inputs.size(); ++position) {
      const int input = op.inputs[position];
      const auto slot = static_cast<std::size_t>(input);
      const Layout read =
          required_input(op, context.block.tensors[slot], static_cast<int>(position), assignment);
      add(input, kept_layout(produced[slot], read), read, false, copies.of_input(index, input),
          reads_inputs);
    }
    for (const int weight : op.weights) {
      const Tensor& tensor = context.block.tensors[static_cast<std::size_t>(weight)];
      add(weight, stored_weight(op, tensor, assignment, rules.of(op)),
          required_input(op, tensor, 0, assignment), true, copies.of_weights(index), reads_weights);
    }
    bytes.largest_dropped = std::max(bytes.largest_dropped, dropped);
  }
  return bytes;
}

// SUMMA holds two pieces at a time, others the whole.
bool gathers_whole(const BlockContext& context) {
  return context.layout.mesh() == TensorMesh::ThreeD;
}

}  // namespace

ByteCount kept_copies(const BlockContext& context) {
  return GatheredCopies::wait(context) ? gathered_copies(context).from_forward : ByteCount();
}

ByteCount working_copies(const BlockContext& context) {
  if (!GatheredCopies::wait(context) && !gathers_whole(context)) {
    return ByteCount();
  }
  const CopyBytes bytes = gathered_copies(context);
  return bytes.from_replay + (gathers_whole(context) ? bytes.largest_dropped : ByteCount());
}

ByteCount keys_and_values(const BlockContext& context) {
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  const std::vector<Layout> produced = produced_layouts(context.block, rules);
  ByteCount bytes;
  for (const Operator& op : context.block.operators) {
    if (op.kind != models::OpKind::Attention) {
      continue;
    }
    const Assignment assignment = assign(context.block, op, rules.of(op));
    for (const int position : {1, 2}) {
      const int input = op.inputs[static_cast<std::size_t>(position)];
      const Tensor& tensor = context.block.tensors[static_cast<std::size_t>(input)];
      bytes += tensor_bytes(context, input,
                            kept_layout(produced[static_cast<std::size_t>(input)],
                                        required_input(op, tensor, position, assignment)));
    }
  }
  return bytes;
}

namespace {

// Bytes of a logit that live only while the loss is differentiated, beside the saved fp32 softmax:
// a fused or compiled loss writes the 16-bit gradient; Megatron's differentiates in place after one
// fp32 copy; eager PyTorch holds the gradients of nll_loss and of log_softmax.
int logit_gradient_bytes(const Execution& execution) {
  if (execution.fused_cross_entropy) {
    return 2;
  }
  if (execution.eager_loss) {
    return 8;
  }
  return execution.compiled_loss ? 2 : 4;
}

}  // namespace

ByteCount logit_gradients(const BlockContext& context) {
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  ByteCount bytes;
  for (const Operator& op : context.block.operators) {
    if (op.kind == models::OpKind::CrossEntropy) {
      const Tensor& logits = context.block.tensors[static_cast<std::size_t>(op.inputs.front())];
      const Layout layout = required_input(op, logits, 0, assign(context.block, op, rules.of(op)));
      bytes += ByteCount(local_elements(logits, layout, context.mesh, context.extents)) *
               logit_gradient_bytes(context.execution);
    }
  }
  return bytes;
}

}  // namespace orrery::plan
