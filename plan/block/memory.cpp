// SPDX-License-Identifier: Apache-2.0
#include "plan/block/memory.hpp"

#include <algorithm>

#include "plan/block/event_writer.hpp"
#include "plan/block/kept.hpp"
#include "plan/block/operator_replay.hpp"
#include "plan/block/saved.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {
namespace {

using models::Operator;
using models::OpKind;
using models::Saved;

// Which tensors the forward leaves alive.
enum class Keep : std::uint8_t { Nothing, Saved, Products, Chosen };

class BlockEvents : private BlockTensors, private EventWriter {
 public:
  BlockEvents(const BlockContext& context, const MemoryFacts& facts, bool gathered)
      : BlockTensors(context, facts),
        gathered_(gathered),
        buffer_of_(block_.tensors.size(), -1),
        is_kept_(block_.tensors.size(), false),
        moved_(block_.tensors.size(), false),
        cast_inputs_(block_.operators.size(), -1) {
    gradient_of_tensor_.assign(block_.tensors.size(), -1);
    result_.input = block_.input >= 0 ? new_buffer() : -1;
    const int between = block_.output >= 0 ? block_.output : block_.input;
    result_.boundary = between >= 0 ? stream_bytes(between) : 0;
    list_weights(result_);
  }

  BlockMemory run() {
    const bool layer = block_.kind == models::BlockKind::Layer;
    const bool full = block_.frozen || (layer && context_.layout.recompute == Recompute::Full);
    const bool products = layer && context_.layout.recompute == Recompute::Products;
    const bool chosen = layer && context_.layout.recompute == Recompute::Operators;
    chosen_ = replay_of(context_);
    events_ = &result_.forward;
    set_input();
    forward(full ? Keep::Nothing : products ? Keep::Products : chosen ? Keep::Chosen : Keep::Saved);
    if ((block_.frozen || (!full && !products)) && result_.input >= 0 &&
        !is_kept_[slot_of(block_.input)]) {
      release(result_.input);
    }
    for (const int tensor : read_by_later_slices(context_)) {
      result_.context.push_back(buffer_of_[slot_of(tensor)]);
    }
    take_output();
    if (!block_.frozen) {
      events_ = &result_.backward;
      result_.output_gradient = block_.output >= 0 ? new_buffer() : -1;
      replaying_ = chosen;
      const std::int32_t replayed_output = full || products || chosen ? replay() : -1;
      backward();
      release(replayed_output);
    }
    result_.num_buffers = next_buffer_;
    result_.groups = std::move(groups_);
    return std::move(result_);
  }

 private:
  void set_input() {
    if (block_.input >= 0) {
      buffer_of_[slot_of(block_.input)] = result_.input;
    }
  }

  // Brings an input into the layout that the operator needs. A gathered copy lives as long as the
  // operator; a scattered or exchanged one takes the place of the tensor.
  void convert(std::size_t index, std::size_t position, Keep keep,
               std::vector<std::int32_t>& temporaries) {
    const int tensor = block_.operators[index].inputs[position];
    const Layout to = required(index, position);
    const models::Tensor& value = block_.tensors[slot_of(tensor)];
    const std::int64_t whole = gathered_bytes(value, produced_[slot_of(tensor)], to);
    if (gathers(tensor, to) && in_gather_buffer()) {
      keep_for_all(MemoryEvent::kGatherBuffer, whole);
    } else if (gathers(tensor, to)) {
      const bool product = keep == Keep::Saved && is_gemm(block_.operators[index]) &&
                           models::gives_weight_gradient(block_, block_.operators[index]);
      const bool instead = product && keeps_gathered();  // the part here is inside what is kept
      const std::int64_t part = instead ? bytes_of(value, produced_[slot_of(tensor)]) : 0;
      const bool keeps = instead || (product && facts_.keeps_gathered_inputs);
      if (whole > part) {
        (keeps ? extras_[index] : temporaries).push_back(allocate(whole - part));
      }
    } else if (moves(tensor, to) && !moved_[slot_of(tensor)]) {
      group_ = maker_of(block_, tensor);
      const std::int32_t buffer =
          exchange(bytes_of(value, to), exchange_stream(tensor, to), temporaries);
      group_ = group_of(block_, block_.operators[index]);
      const int producer = attention_of(tensor);
      const bool chosen =
          keep == Keep::Chosen && producer >= 0 && !chosen_.loses[slot_of(producer)];
      if (producer >= 0 && (keep == Keep::Saved || chosen)) {
        extras_[slot_of(producer)].push_back(buffer_of_[slot_of(tensor)]);
        is_kept_[slot_of(tensor)] = is_kept_[slot_of(tensor)] && !keeps_result(producer);
      } else if (keep == Keep::Products && is_kept_[slot_of(tensor)]) {
        scattered_.push_back(buffer_of_[slot_of(tensor)]);
      } else if (tensor != block_.input) {
        release(buffer_of_[slot_of(tensor)]);
      }
      buffer_of_[slot_of(tensor)] = buffer;
      moved_[slot_of(tensor)] = true;
      // Per-operator checkpointing keeps what was communicated, too.
      is_kept_[slot_of(tensor)] = is_kept_[slot_of(tensor)] || keep == Keep::Products;
    }
  }

  void forward(Keep keep) {
    if (!replaying_) {
      extras_.assign(block_.operators.size(), {});
    }
    const std::vector<int> products = kept_products(context_);
    for (std::size_t index = 0; index < block_.operators.size(); ++index) {
      const Operator& op = block_.operators[index];
      if (replaying_ && !chosen_.runs[index]) {
        continue;
      }
      std::vector<std::int32_t> temporaries;
      group_ = group_of(block_, op);
      if (const std::int64_t bytes = gathered_weights(index); bytes > 0) {
        const bool keeps =
            keep == Keep::Saved && keeps_gathered() && models::gives_input_gradient(block_, op);
        (keeps ? extras_[index] : temporaries).push_back(allocate(bytes));
      }
      for (std::size_t position = 0; position < op.inputs.size(); ++position) {
        convert(index, position, keep, temporaries);
      }
      for (const int output : op.outputs) {
        create(output, (keep == Keep::Products && contains(products, output)) ||
                           (keep == Keep::Chosen && chosen_.kept[slot_of(output)]));
      }
      if (op.kind == OpKind::CrossEntropy) {
        loss_forward(loss_memory(), fp32_logits(index), temporaries);
      }
      save(index, keep);
      release_all(temporaries);
      release_tensors(index, [&](int tensor) {
        return is_kept_[slot_of(tensor)] || read_after(index, tensor);
      });
    }
  }

  void create(int output, bool keep) {
    const auto slot = slot_of(output);
    if (buffer_of_[slot] < 0) {  // else saved by the first forward, not computed again
      buffer_of_[slot] = allocate(bytes_of(block_.tensors[slot], produced_[slot]));
      is_kept_[slot] = is_kept_[slot] || keep;
    }
  }

  void save(std::size_t index, Keep keep) {
    const bool in_logits = block_.operators[index].kind == OpKind::CrossEntropy &&
                           loss_memory() == LossMemory::InLogits;
    for (const Saved& saved : kept_[index]) {
      const auto slot = slot_of(saved.tensor);
      if (in_logits || is_tensor_itself(saved)) {
        is_kept_[slot] = is_kept_[slot] || in_logits || keep == Keep::Saved ||
                         (keep == Keep::Chosen && chosen_.kept[slot]);
      } else if (keep == Keep::Saved || (keep == Keep::Chosen && !chosen_.loses[index])) {
        group_ = kept_with(block_, block_.operators[index], saved);
        extras_[index].push_back(allocate(extra_bytes(index, saved)));
        cast_inputs_[index] = is_gemm(block_.operators[index]) ? extras_[index].back() : -1;
      }
    }
  }

  // Inputs and outputs of an operator that are not needed any more; what neighbours share stays.
  template <typename Stays>
  void release_tensors(std::size_t index, Stays stays) {
    const Operator& op = block_.operators[index];
    for (const std::vector<int>* list : {&op.inputs, &op.outputs}) {
      for (const int tensor : *list) {
        std::int32_t& buffer = buffer_of_[slot_of(tensor)];
        if (tensor != block_.input && tensor != block_.output && !stays(tensor)) {
          release(buffer);
          buffer = -1;
        }
      }
    }
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
        moved_[slot] = false;
      }
    }
    set_input();
    if (block_.input >= 0 && !replaying_) {
      is_kept_[slot_of(block_.input)] = true;
    }
    forward(Keep::Saved);
    return block_.output >= 0 ? buffer_of_[slot_of(block_.output)] : -1;
  }

  void backward() {
    begin_gradients();
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
    }
  }

  void operator_backward(std::size_t index) {
    const Operator& op = block_.operators[index];
    if (!models::has_backward(block_, op)) {
      return;
    }
    std::vector<std::int32_t> temporaries;
    gather_gradients(op, temporaries);
    if (const std::int64_t bytes = gathered_weights(index); bytes > 0 && !keeps_gathered()) {
      temporaries.push_back(allocate(bytes));
    }
    if (op.kind == OpKind::CrossEntropy) {
      if (loss_backward(loss_memory(), fp32_logits(index), temporaries)) {
        release_all(extras_[index]);
      }
    } else if (op.attention_core && context_.layout.recompute == Recompute::Selective &&
               !context_.execution.fused_attention) {
      replay_core(index, temporaries);
    }
    if (passes_through(op)) {
      for (std::size_t position = 0; position < op.inputs.size(); ++position) {
        const int sum = op.outputs[position % op.outputs.size()];
        if (has_gradient(op.inputs[position])) {
          pass_on(gradient_of_tensor_[slot_of(sum)], slot_of(op.inputs[position]));
        }
      }
    } else {
      input_gradients(index, temporaries);
    }
    weight_gradient(index);
    list_read_by_weight_gradient(index, temporaries);
    release_all(temporaries);
    release_all(extras_[index]);
    release_tensors(index, [&](int tensor) { return saved_before(index, tensor); });
    for (const int output : op.outputs) {
      drop(gradient_of_tensor_[slot_of(output)]);
      gradient_of_tensor_[slot_of(output)] = -1;
    }
  }

  // Where the forward scattered an output's partial sums, the backward gathers their gradient.
  void gather_gradients(const Operator& op, std::vector<std::int32_t>& temporaries) {
    for (const int output : op.outputs) {
      const auto slot = slot_of(output);
      if (is_scattered(output) && gradient_of_tensor_[slot] >= 0) {
        temporaries.push_back(allocate(bytes_of(block_.tensors[slot], produced_[slot])));
      }
    }
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
    if (op.kind == OpKind::CrossEntropy && loss_memory() == LossMemory::InLogits) {
      std::int32_t& logits = buffer_of_[slot_of(op.inputs.front())];
      pass_on(logits, slot_of(op.inputs.front()));
      logits = -1;
      return;
    }
    for (std::size_t position = 0; position < op.inputs.size(); ++position) {
      const int tensor = op.inputs[position];
      const auto slot = slot_of(tensor);
      const Layout whole = required(index, position);
      if (regathers(op) && gathers(tensor, whole)) {
        temporaries.push_back(
            allocate(gathered_bytes(block_.tensors[slot], produced_[slot], whole)));
      }
      if (!has_gradient(tensor)) {
        continue;
      }
      const std::int64_t bytes = bytes_of(block_.tensors[slot], whole);
      const std::int64_t kept = bytes_of(block_.tensors[slot], gradient_of(produced_[slot]));
      std::int32_t buffer = allocate(bytes);
      if (kept < bytes) {
        const std::int32_t part = allocate(kept);
        release(buffer);
        buffer = part;
      } else if (const int stream = exchange_stream(tensor, whole); stream > 0) {
        temporaries.push_back(buffer);
        buffer = exchange(bytes, stream, temporaries);
      }
      pass_on(buffer, slot);
    }
    if (const std::int64_t sums = query_sums(index); sums > 0) {
      temporaries.push_back(allocate(sums));
    }
  }

  void weight_gradient(std::size_t index) {
    const std::int64_t bytes = weight_gradient_bytes(index);
    if (bytes == 0) {
      return;
    }
    const std::int32_t partial =  // before the mesh scatters its sums to where weights are stored
        gathered_weights(index) > 0 ? allocate(gathered_weights(index)) : -1;
    if (gathered_) {
      result_.weight_gradients.push_back(allocate(bytes));
    } else if (has_placeholder(index)) {
      keep_for_all(MemoryEvent::kPlaceholder, placeholder_bytes(index));
    } else {
      release(allocate(bytes));
    }
    release(partial);
  }

  // Of a product in 8 or 4 bits the gradients as they were cast.
  void list_read_by_weight_gradient(std::size_t index, std::vector<std::int32_t>& temporaries) {
    const Operator& op = block_.operators[index];
    if (!is_gemm(op) || !models::gives_weight_gradient(block_, op)) {
      return;
    }
    const std::int32_t cast = cast_inputs_[index];
    result_.for_weight_grads.push_back(cast >= 0 ? cast : buffer_of_[slot_of(op.inputs.front())]);
    for (const int output : op.outputs) {
      std::int32_t gradient = gradient_of_tensor_[slot_of(output)];
      if (keeps_cast(context_, op) && gradient >= 0) {
        gradient = allocate(cast_gradient_bytes(output));
        temporaries.push_back(gradient);
      }
      result_.for_weight_grads.push_back(gradient);
    }
  }

  void release_leftovers() {
    release_all(scattered_);
    for (std::size_t slot = 0; slot < buffer_of_.size(); ++slot) {
      const bool shared = static_cast<int>(slot) == block_.output;  // with the next block
      if (buffer_of_[slot] >= 0 && !shared && buffer_of_[slot] != result_.input) {
        release(buffer_of_[slot]);
      }
    }
    if (result_.input >= 0 && is_kept_[slot_of(block_.input)]) {
      release(result_.input);
    }
  }

  bool gathered_;
  OperatorReplay chosen_;                // of Recompute::Operators
  bool replaying_ = false;               // its operators alone
  std::vector<std::int32_t> buffer_of_;  // of a tensor, -1 when not live
  std::vector<bool> is_kept_;            // saved for the backward
  std::vector<bool> moved_;
  std::vector<std::int32_t> scattered_;  // products that were kept before they were scattered
  std::vector<std::vector<std::int32_t>> extras_;  // saved, per operator, beside tensors
  std::vector<std::int32_t> cast_inputs_;          // of those, a product's input as it was cast
  BlockMemory result_;
};

}  // namespace

BlockMemory block_memory(const BlockContext& context, const MemoryFacts& facts, bool gathered) {
  return BlockEvents(context, facts, gathered).run();
}

}  // namespace orrery::plan
