// SPDX-License-Identifier: Apache-2.0
#include "plan/block_memory.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/block_cost.hpp"

namespace orrery::plan {
namespace {

using models::Block;
using models::BlockKind;
using models::Operator;
using models::OpKind;
using models::Saved;
using models::Tensor;

std::size_t slot_of(int index) { return static_cast<std::size_t>(index); }

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool is_gemm(const Operator& op) {
  return op.kind == OpKind::Gemm || op.kind == OpKind::GroupedGemm;
}

// Which tensors the forward leaves alive.
enum class Keep : std::uint8_t { Nothing, Saved, Products };

class BlockEvents {
 public:
  BlockEvents(const BlockContext& context, const MemoryFacts& facts, bool gathered)
      : context_(context),
        block_(context.block),
        facts_(facts),
        gathered_(gathered),
        rules_(rules_of(context.layout, context.execution.vocab_parallel)),
        produced_(produced_layouts(block_, rules_)),
        buffer_of_(block_.tensors.size(), -1),
        is_kept_(block_.tensors.size(), false),
        gradient_of_tensor_(block_.tensors.size(), -1) {
    for (const Operator& op : block_.operators) {
      assignments_.push_back(assign(block_, op, rules_.of(op)));
    }
    result_.input = block_.input >= 0 ? new_buffer() : -1;
    result_.boundary = block_.output >= 0 ? stream_bytes(block_.output) : 0;
    list_weights();
  }

  BlockMemory run() {
    const bool layer = block_.kind == BlockKind::Layer;
    const bool full = layer && context_.layout.recompute == Recompute::Full;
    const bool products = layer && context_.layout.recompute == Recompute::Products;
    events_ = &result_.forward;
    set_input();
    forward(full ? Keep::Nothing : products ? Keep::Products : Keep::Saved);
    if (!full && !products && result_.input >= 0 && !is_kept_[slot_of(block_.input)]) {
      release(result_.input);
    }
    take_output();
    events_ = &result_.backward;
    result_.output_gradient = block_.output >= 0 ? new_buffer() : -1;
    std::int32_t replayed_output = -1;
    if (full || products) {
      replayed_output = replay();
    }
    backward();
    if (replayed_output >= 0) {
      release(replayed_output);
    }
    result_.num_buffers = next_buffer_;
    return std::move(result_);
  }

 private:
  std::int32_t new_buffer() { return next_buffer_++; }
  std::int32_t allocate(std::int64_t bytes) {
    const std::int32_t buffer = new_buffer();
    events_->push_back({buffer, std::max<std::int64_t>(bytes, 1)});
    return buffer;
  }
  void release(std::int32_t buffer) {
    if (buffer >= 0) {
      events_->push_back({buffer, 0});
    }
  }

  std::int64_t bytes_of(const Tensor& tensor, const Layout& layout) const {
    return local_elements(tensor, layout, context_.mesh, context_.extents) *
           element_bytes(tensor.element, context_.precision);
  }
  std::int64_t stream_bytes(int tensor) const {
    return bytes_of(block_.tensors[slot_of(tensor)], stream_layout(rules_));
  }

  void list_weights() {
    for (std::size_t index = 0; index < block_.operators.size(); ++index) {
      const Operator& op = block_.operators[index];
      std::int64_t all = 0;
      for (const int weight : op.weights) {
        all += weight_elements(index, weight);
      }
      result_.weights.push_back(all);
      if (is_gemm(op) && block_.kind == BlockKind::Layer) {
        const std::int64_t experts = op.kind == OpKind::GroupedGemm ? local_experts(index) : 1;
        result_.placeholders.push_back(gemm_elements(index) / std::max<std::int64_t>(1, experts));
      }
    }
  }

  std::int64_t weight_elements(std::size_t index, int weight) const {
    const Tensor& tensor = block_.tensors[slot_of(weight)];
    const Operator& op = block_.operators[index];
    return local_elements(tensor, produced_gradient(op, tensor, 0, assignments_[index]),
                          context_.mesh, {});
  }

  // Weights that take part in the products, without biases.
  std::int64_t gemm_elements(std::size_t index) const {
    const Operator& op = block_.operators[index];
    std::int64_t sum = 0;
    for (const int weight : op.weights) {
      const Tensor& tensor = block_.tensors[slot_of(weight)];
      const bool product = std::any_of(tensor.dims.begin(), tensor.dims.end(), [&](const auto& dim) {
        return std::find(op.reduced.begin(), op.reduced.end(), dim.var) != op.reduced.end();
      });
      sum += product ? weight_elements(index, weight) : 0;
    }
    return sum;
  }

  std::int64_t local_experts(std::size_t index) const {
    const Operator& op = block_.operators[index];
    const Tensor& tensor = block_.tensors[slot_of(op.weights.front())];
    const Layout layout = produced_gradient(op, tensor, 0, assignments_[index]);
    for (const models::Dim& dim : tensor.dims) {
      if (dim.var == models::Var::Expert) {
        return local_extent(dim, layout, context_.mesh, {});
      }
    }
    return 1;
  }

  void set_input() {
    if (block_.input >= 0) {
      buffer_of_[slot_of(block_.input)] = result_.input;
      // The next passes need it: the caller's tensor is not ours to release before the end.
    }
  }

  bool read_after(std::size_t index, int tensor) const {
    for (std::size_t later = index + 1; later < block_.operators.size(); ++later) {
      if (contains(block_.operators[later].inputs, tensor)) {
        return true;
      }
    }
    return false;
  }

  Layout required(std::size_t index, std::size_t position) const {
    const Operator& op = block_.operators[index];
    return required_input(op, block_.tensors[slot_of(op.inputs[position])],
                          static_cast<int>(position), assignments_[index]);
  }

  bool gathers(int tensor, const Layout& to) const {
    const std::vector<Conversion> needed = conversions(produced_[slot_of(tensor)], to);
    return std::any_of(needed.begin(), needed.end(), [&](const Conversion& conversion) {
      return conversion.kind == sim::CommKind::AllGather && context_.mesh.of(conversion.axis) > 1;
    });
  }

  bool moves(int tensor, const Layout& to) const {
    const std::vector<Conversion> needed = conversions(produced_[slot_of(tensor)], to);
    return std::any_of(needed.begin(), needed.end(), [&](const Conversion& conversion) {
      return (conversion.kind == sim::CommKind::ReduceScatter ||
              conversion.kind == sim::CommKind::AllToAll) &&
             context_.mesh.of(conversion.axis) > 1;
    });
  }

  // Brings an input into the layout that the operator needs. A gathered copy lives as long as the
  // operator; a scattered or exchanged one takes the place of the tensor.
  void convert(std::size_t index, std::size_t position, std::vector<std::int32_t>& temporaries) {
    const int tensor = block_.operators[index].inputs[position];
    const Layout to = required(index, position);
    const Tensor& value = block_.tensors[slot_of(tensor)];
    if (gathers(tensor, to)) {
      temporaries.push_back(allocate(bytes_of(value, to)));
    } else if (moves(tensor, to) && !moved_[slot_of(tensor)]) {
      const std::int32_t buffer = allocate(bytes_of(value, to));
      if (tensor != block_.input) {
        release(buffer_of_[slot_of(tensor)]);
      }
      buffer_of_[slot_of(tensor)] = buffer;
      moved_[slot_of(tensor)] = true;
    }
  }

  bool is_dropped(const Saved& saved) const {
    const bool fused = context_.execution.fused_attention;
    const bool selective = context_.layout.recompute == Recompute::Selective;
    return (saved.attention_core && (fused || selective)) || (saved.fused_only && !fused);
  }

  // Saved as the operator sees it, where no tensor of the chain is that.
  std::int64_t extra_bytes(std::size_t index, const Saved& saved) const {
    const Tensor& tensor = block_.tensors[slot_of(saved.tensor)];
    const bool known = is_produced(saved.tensor) || saved.tensor == block_.input;
    const Layout layout =
        known ? produced_[slot_of(saved.tensor)]
              : produced_output(block_.operators[index], tensor, assignments_[index]);
    const double elements = static_cast<double>(
        local_elements(tensor, layout, context_.mesh, context_.extents));
    return static_cast<std::int64_t>(elements * saved.copies) *
           element_bytes(saved.element, context_.precision);
  }

  bool is_produced(int tensor) const {
    return std::any_of(block_.operators.begin(), block_.operators.end(),
                       [&](const Operator& op) { return contains(op.outputs, tensor); });
  }

  bool is_tensor_itself(const Saved& saved) const {
    const Tensor& tensor = block_.tensors[slot_of(saved.tensor)];
    return saved.copies == 1.0 && saved.element == tensor.element &&
           (is_produced(saved.tensor) || saved.tensor == block_.input);
  }

  void forward(Keep keep) {
    moved_.assign(block_.tensors.size(), false);
    extras_.assign(block_.operators.size(), {});
    const std::vector<int> products = kept_products(block_, context_.precision);
    for (std::size_t index = 0; index < block_.operators.size(); ++index) {
      const Operator& op = block_.operators[index];
      std::vector<std::int32_t> temporaries;
      for (std::size_t position = 0; position < op.inputs.size(); ++position) {
        convert(index, position, temporaries);
      }
      for (const int output : op.outputs) {
        create(output, keep == Keep::Products && contains(products, output));
      }
      if (op.kind == OpKind::CrossEntropy) {
        loss_forward(index, temporaries);
      }
      save(index, keep);
      for (const std::int32_t buffer : temporaries) {
        release(buffer);
      }
      release_read(index);
    }
  }

  void create(int output, bool keep) {
    const auto slot = slot_of(output);
    if (buffer_of_[slot] >= 0) {
      return;  // saved by the first forward, not computed again
    }
    buffer_of_[slot] = allocate(bytes_of(block_.tensors[slot], produced_[slot]));
    is_kept_[slot] = is_kept_[slot] || keep;
  }

  void save(std::size_t index, Keep keep) {
    for (const Saved& saved : block_.operators[index].saved) {
      if (is_dropped(saved)) {
        continue;
      }
      if (is_tensor_itself(saved)) {
        is_kept_[slot_of(saved.tensor)] = is_kept_[slot_of(saved.tensor)] || keep == Keep::Saved;
      } else if (keep == Keep::Saved) {
        extras_[index].push_back(allocate(extra_bytes(index, saved)));
      }
    }
  }

  // Inputs and outputs that nobody reads any more and that are not saved.
  void release_read(std::size_t index) {
    const Operator& op = block_.operators[index];
    for (const std::vector<int>* list : {&op.inputs, &op.outputs}) {
      for (const int tensor : *list) {
        const auto slot = slot_of(tensor);
        if (tensor == block_.input || tensor == block_.output || is_kept_[slot] ||
            buffer_of_[slot] < 0 || read_after(index, tensor)) {
          continue;
        }
        release(buffer_of_[slot]);
        buffer_of_[slot] = -1;
      }
    }
  }

  // Passes of the loss over the logits beside the copy that is saved: eager PyTorch makes a float
  // copy and its log-softmax; Megatron works in place in the copy.
  void loss_forward(std::size_t index, std::vector<std::int32_t>& temporaries) {
    if (context_.execution.eager_loss && !context_.execution.fused_cross_entropy) {
      temporaries.push_back(allocate(fp32_logits(index)));
    }
  }

  std::int64_t fp32_logits(std::size_t index) const {
    const Operator& op = block_.operators[index];
    const Tensor& logits = block_.tensors[slot_of(op.inputs.front())];
    return 4 * local_elements(logits, required_input(op, logits, 0, assignments_[index]),
                              context_.mesh, context_.extents);
  }

  void take_output() {
    if (block_.output < 0) {
      return;
    }
    const auto slot = slot_of(block_.output);
    const Layout stream = stream_layout(rules_);
    if (moves(block_.output, stream) || gathers(block_.output, stream)) {
      result_.output = allocate(bytes_of(block_.tensors[slot], stream));
      if (!is_kept_[slot]) {
        release(buffer_of_[slot]);
      }
    } else {
      result_.output = buffer_of_[slot];
    }
    buffer_of_[slot] = -1;
  }

  // The forward again, with everything that the backward needs kept; returns its output, which
  // lives until the backward has ended.
  std::int32_t replay() {
    for (std::size_t slot = 0; slot < buffer_of_.size(); ++slot) {
      if (!is_kept_[slot]) {
        buffer_of_[slot] = -1;
      }
    }
    set_input();
    if (block_.input >= 0) {
      is_kept_[slot_of(block_.input)] = true;
    }
    forward(Keep::Saved);
    return block_.output >= 0 ? buffer_of_[slot_of(block_.output)] : -1;
  }

  bool passes_through(const Operator& op) const {
    const bool addition = op.kind == OpKind::Elementwise && op.pointwise && op.saved.empty();
    if (!addition) {
      return false;
    }
    const Tensor& output = block_.tensors[slot_of(op.outputs.front())];
    return std::all_of(op.inputs.begin(), op.inputs.end(), [&](int input) {
      return block_.tensors[slot_of(input)].dims.size() == output.dims.size() &&
             bytes_of(block_.tensors[slot_of(input)], stream_layout(rules_)) ==
                 bytes_of(output, stream_layout(rules_));
    }) && op.name.find("rotary") == std::string::npos;
  }

  bool has_gradient(int tensor) const {
    const Tensor& value = block_.tensors[slot_of(tensor)];
    return value.element != models::Element::Int64 && value.element != models::Element::Mask &&
           (is_produced(tensor) || tensor == block_.input || tensor == block_.memory);
  }

  void hold(std::int32_t buffer) {
    if (slot_of(buffer) >= references_.size()) {
      references_.resize(slot_of(buffer) + 1, 0);
    }
    ++references_[slot_of(buffer)];
  }

  void drop(std::int32_t buffer) {
    if (buffer >= 0 && --references_[slot_of(buffer)] == 0) {
      release(buffer);
    }
  }

  // A gradient of the tensor: the first is kept, another one is added to it and freed.
  void add_gradient(int tensor, std::int32_t buffer) {
    std::int32_t& known = gradient_of_tensor_[slot_of(tensor)];
    if (known < 0) {
      known = buffer;
      return;
    }
    if (references_[slot_of(known)] > 1 && references_[slot_of(buffer)] == 1) {
      std::swap(known, buffer);  // the one that nobody else reads takes the sum
    }
    drop(buffer);
  }

  void backward() {
    references_.assign(static_cast<std::size_t>(next_buffer_), 0);
    if (block_.output >= 0) {
      gradient_of_tensor_[slot_of(block_.output)] = result_.output_gradient;
      hold(result_.output_gradient);
    }
    for (std::size_t index = block_.operators.size(); index-- > 0;) {
      operator_backward(index);
    }
    release_leftovers();
    if (block_.input >= 0) {
      result_.input_gradient = gradient_of_tensor_[slot_of(block_.input)];
    } else if (result_.output_gradient >= 0) {
      result_.input_gradient = -1;
    }
  }

  void operator_backward(std::size_t index) {
    const Operator& op = block_.operators[index];
    std::vector<std::int32_t> temporaries;
    gather_gradients(op, temporaries);
    if (op.kind == OpKind::CrossEntropy) {
      loss_backward(index, temporaries);
    } else if (op.attention_core && context_.layout.recompute == Recompute::Selective &&
               !context_.execution.fused_attention) {
      replay_core(index, temporaries);
    }
    if (passes_through(op)) {
      const std::int32_t gradient = gradient_of_tensor_[slot_of(op.outputs.front())];
      for (const int input : op.inputs) {
        if (has_gradient(input) && gradient >= 0) {
          hold(gradient);
          add_gradient(input, gradient);
        }
      }
    } else {
      input_gradients(index, temporaries);
    }
    weight_gradient(index);
    for (const std::int32_t buffer : temporaries) {
      release(buffer);
    }
    release_saved(index);
    for (const int output : op.outputs) {
      drop(gradient_of_tensor_[slot_of(output)]);
      gradient_of_tensor_[slot_of(output)] = -1;
    }
  }

  // Where the forward scattered an output's partial sums, the backward gathers their gradient.
  void gather_gradients(const Operator& op, std::vector<std::int32_t>& temporaries) {
    for (const int output : op.outputs) {
      const auto slot = slot_of(output);
      const bool scattered = std::any_of(
          std::begin(kAxes), std::end(kAxes), [&](Axis axis) {
            return produced_[slot][axis].is_partial() && context_.mesh.of(axis) > 1 &&
                   stream_layout(rules_)[axis].is_sharded();
          });
      if (scattered && gradient_of_tensor_[slot] >= 0) {
        temporaries.push_back(allocate(bytes_of(block_.tensors[slot], produced_[slot])));
      }
    }
  }

  void loss_backward(std::size_t index, std::vector<std::int32_t>& temporaries) {
    if (context_.execution.fused_cross_entropy || !context_.execution.eager_loss) {
      return;  // in place in the saved softmax
    }
    const std::int32_t of_loss = allocate(fp32_logits(index));   // of nll_loss
    temporaries.push_back(allocate(fp32_logits(index)));  // of log_softmax
    release(of_loss);
  }

  void replay_core(std::size_t index, std::vector<std::int32_t>& temporaries) {
    for (const Saved& saved : block_.operators[index].saved) {
      if (saved.attention_core) {
        temporaries.push_back(allocate(extra_bytes(index, saved)));
      }
    }
  }

  void input_gradients(std::size_t index, std::vector<std::int32_t>& temporaries) {
    const Operator& op = block_.operators[index];
    for (std::size_t position = 0; position < op.inputs.size(); ++position) {
      const int tensor = op.inputs[position];
      const auto slot = slot_of(tensor);
      if (is_gemm(op) && gathers(tensor, required(index, position))) {
        temporaries.push_back(allocate(bytes_of(block_.tensors[slot], required(index, position))));
      }
      if (!has_gradient(tensor)) {
        continue;
      }
      const Layout whole = required(index, position);
      const std::int64_t bytes = bytes_of(block_.tensors[slot], whole);
      const std::int64_t kept = bytes_of(block_.tensors[slot], gradient_of(produced_[slot]));
      std::int32_t buffer = allocate(bytes);
      if (kept < bytes) {
        const std::int32_t part = allocate(kept);
        release(buffer);
        buffer = part;
      }
      hold(buffer);
      add_gradient(tensor, buffer);
    }
  }

  void weight_gradient(std::size_t index) {
    const Operator& op = block_.operators[index];
    const std::int64_t elements = op.kind == OpKind::Embedding ? result_.weights[index]
                                  : is_gemm(op)               ? gemm_elements(index)
                                                              : 0;
    if (elements == 0) {
      return;
    }
    const std::int64_t bytes =
        elements * element_bytes(models::Element::Param, context_.precision);
    const bool cached = facts_.weight_gradient == WeightGradient::Cached && is_gemm(op) &&
                        block_.kind == BlockKind::Layer;
    if (gathered_) {
      result_.weight_gradients.push_back(allocate(bytes));
    } else if (!cached) {
      release(allocate(bytes));
    }
  }

  void release_saved(std::size_t index) {
    const Operator& op = block_.operators[index];
    for (const std::int32_t buffer : extras_[index]) {
      release(buffer);
    }
    extras_[index].clear();
    for (const std::vector<int>* list : {&op.inputs, &op.outputs}) {
      for (const int tensor : *list) {
        const auto slot = slot_of(tensor);
        if (buffer_of_[slot] >= 0 && tensor != block_.input && tensor != block_.output &&
            !saved_before(index, tensor)) {
          release(buffer_of_[slot]);
          buffer_of_[slot] = -1;
        }
      }
    }
  }

  // Whether an operator whose backward is still to come holds the tensor.
  bool saved_before(std::size_t index, int tensor) const {
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      for (const Saved& saved : block_.operators[earlier].saved) {
        if (saved.tensor == tensor && is_tensor_itself(saved)) {
          return true;
        }
      }
    }
    return false;
  }

  void release_leftovers() {
    for (std::size_t slot = 0; slot < buffer_of_.size(); ++slot) {
      const bool shared = static_cast<int>(slot) == block_.output;
      if (buffer_of_[slot] >= 0 && !shared && buffer_of_[slot] != result_.input) {
        release(buffer_of_[slot]);
      }
    }
    const bool held = result_.input >= 0 && is_kept_[slot_of(block_.input)];
    const bool checkpoint = context_.layout.recompute == Recompute::Full ||
                            context_.layout.recompute == Recompute::Products;
    if (held || (checkpoint && block_.kind == BlockKind::Layer)) {
      release(result_.input);
    }
  }

  static constexpr Axis kAxes[] = {Axis::Tensor, Axis::Context, Axis::Expert, Axis::Shard,
                                   Axis::Replica};

  const BlockContext& context_;
  const Block& block_;
  const MemoryFacts& facts_;
  bool gathered_;
  BlockRules rules_;
  std::vector<Layout> produced_;
  std::vector<Assignment> assignments_;
  std::vector<std::int32_t> buffer_of_;  // of a tensor, -1 when not live
  std::vector<bool> is_kept_;            // saved for the backward
  std::vector<bool> moved_;
  std::vector<std::int32_t> gradient_of_tensor_;
  std::vector<std::vector<std::int32_t>> extras_;  // saved, per operator, beside tensors
  std::vector<int> references_;                    // gradients that share a buffer
  std::vector<MemoryEvent>* events_ = nullptr;
  std::int32_t next_buffer_ = 0;
  BlockMemory result_;
};

}  // namespace

BlockMemory block_memory(const BlockContext& context, const MemoryFacts& facts, bool gathered) {
  return BlockEvents(context, facts, gathered).run();
}

}  // namespace orrery::plan
