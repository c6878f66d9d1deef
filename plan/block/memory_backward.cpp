// SPDX-License-Identifier: Apache-2.0
// The backward of a block's events.
#include <utility>

#include "plan/block/kept.hpp"
#include "plan/block/memory_events.hpp"

namespace orrery::plan {

using models::Operator;
using models::OpKind;
using models::Saved;

void BlockEvents::backward() {
  begin_gradients();
  if (block_.output >= 0) {
    gradient_of_tensor_[slot_of(block_.output)] = result_.output_gradient;
    hold(result_.output_gradient);
  }
  for (auto index = order_.rbegin(); index != order_.rend(); ++index) {
    operator_backward(*index);
  }
  release_leftovers();
  if (block_.input >= 0) {
    result_.input_gradient = gradient_of_tensor_[slot_of(block_.input)];
  }
}

void BlockEvents::operator_backward(std::size_t index) {
  const Operator& op = block_.operators[index];
  if (!models::has_backward(block_, op)) {
    return;
  }
  std::vector<std::int32_t> temporaries;
  if (routed_.holds && index == routed_.dispatch) {
    route_back(routed_.sent, routed_.exchanged ? 1 : 0);
  }
  if (index == attention_.split) {
    join_gradients();
  }
  exchange_result_gradient(index, temporaries);
  gather_gradients(op, temporaries);
  const bool again = copies_.of_weights(index) == GatheredCopy::Dropped;
  if (const std::int64_t bytes = gathered_weights(index, false); bytes > 0 && again) {
    temporaries.push_back(allocate(bytes));
  }
  if (models::gives_input_gradient(block_, op)) {
    cast_weights(index, true, temporaries);
  }
  if (op.kind == OpKind::CrossEntropy) {
    if (loss_backward(loss_memory(), fp32_logits(index), temporaries)) {
      release_all(extras_[index]);
    }
  } else if (op.attention_core && context_.layout.recompute == Recompute::Selective) {
    replay_core(index, temporaries);
  }
  if (passes_through(op)) {
    pass_gradients(op);
  } else {
    input_gradients(index, temporaries);
  }
  weight_gradient(index);
  list_read_by_weight_gradient(index, temporaries);
  release_all(temporaries);
  release_all(extras_[index]);
  release_tensors(index, [&](int tensor) { return saved_before(index, tensor); });
  release_all(whole_gradients_);
  for (const int output : op.outputs) {
    drop(gradient_of_tensor_[slot_of(output)]);
    gradient_of_tensor_[slot_of(output)] = -1;
  }
  if (routed_.holds && index == routed_.combine) {
    route_back(routed_.returned, (routed_.exchanged ? 1 : 0) + (routed_.sorted ? 1 : 0));
  } else if (routed_.holds && index == routed_.experts) {
    route_back(routed_.sent, routed_.sorted ? 1 : 0);
  }
}

void BlockEvents::join_gradients() {
  std::int64_t bytes = 0;
  const std::vector<int>& parts = block_.operators[attention_.split].outputs;
  for (const int part : parts) {
    bytes += bytes_of(block_.tensors[slot_of(part)], gradient_of(produced_[slot_of(part)]));
  }
  const std::int32_t joined = allocate(bytes);
  hold(joined);
  for (const int part : parts) {
    drop(gradient_of_tensor_[slot_of(part)]);
    gradient_of_tensor_[slot_of(part)] = -1;
  }
  gradient_of_tensor_[slot_of(parts.front())] = joined;
}

void BlockEvents::exchange_result_gradient(std::size_t index,
                                           std::vector<std::int32_t>& temporaries) {
  const Operator& op = block_.operators[index];
  if (op.kind != OpKind::Attention || gradient_of_tensor_[slot_of(op.outputs.front())] < 0) {
    return;
  }
  const int result = op.outputs.front();
  const bool goes_back = context_.layout.context == ContextParallel::Mix &&
                         context_.execution.fused_attention &&
                         context_.layout.recompute != Recompute::Selective;
  if (goes_back) {  // kept behind the exchange alone (plan/block/kept.hpp)
    temporaries.push_back(
        allocate(bytes_of(block_.tensors[slot_of(result)], produced_[slot_of(result)])));
  }
  for (std::size_t reader = 0; reader < block_.operators.size(); ++reader) {
    const std::vector<int>& inputs = block_.operators[reader].inputs;
    if (!inputs.empty() && inputs.front() == result &&
        exchange_stream(result, required(reader, 0)) > 0) {
      const std::int64_t bytes =
          bytes_of(block_.tensors[slot_of(result)], gradient_of(produced_[slot_of(result)]));
      temporaries.push_back(exchange_heads({bytes}, kExchangeStream, true).front());
    }
  }
}

void BlockEvents::pass_gradients(const Operator& op) {
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const int sum = op.outputs[position % op.outputs.size()];
    if (has_gradient(op.inputs[position])) {
      pass_on(gradient_of_tensor_[slot_of(sum)], slot_of(op.inputs[position]));
    }
  }
}

void BlockEvents::route_back(int tensor, int copies) {
  const auto slot = slot_of(tensor);
  std::int32_t& gradient = gradient_of_tensor_[slot];
  const models::Tensor& value = block_.tensors[slot];
  const Layout layout = gradient_of(produced_[slot]);
  const auto move_to = [&](std::int64_t bytes) {
    const std::int32_t next = allocate(bytes);
    hold(next);
    drop(gradient);
    gradient = next;
  };
  const bool quantised = routed_.quantised && tensor == routed_.returned;
  for (int copy = 0; copy < copies && gradient >= 0; ++copy) {
    move_to(quantised ? quantised_bytes(value, layout) : bytes_of(value, layout));
  }
  if (quantised && gradient >= 0 && !is_quantised(context_.precision)) {
    move_to(bytes_of(value, layout));  // widened for the experts
  }
}

void BlockEvents::gather_gradients(const Operator& op, std::vector<std::int32_t>& temporaries) {
  for (const int output : op.outputs) {
    const auto slot = slot_of(output);
    if (is_scattered(output) && gradient_of_tensor_[slot] >= 0) {
      temporaries.push_back(allocate(bytes_of(block_.tensors[slot], produced_[slot])));
      gathered_gradients_[slot] = temporaries.back();
    }
  }
}

void BlockEvents::replay_core(std::size_t index, std::vector<std::int32_t>& temporaries) {
  const Operator& op = block_.operators[index];
  const bool fused = context_.execution.fused_attention;
  for (const int output : op.outputs) {  // a fused kernel's backward reads its result
    const auto slot = slot_of(output);
    if (fused) {
      temporaries.push_back(allocate(bytes_of(block_.tensors[slot], produced_[slot])));
    }
  }
  for (const Saved& saved : kept_by(context_, op, Recompute::None)) {
    if (fused ? saved.fused_only && !contains(op.outputs, saved.tensor) : saved.attention_core) {
      temporaries.push_back(allocate(extra_bytes(index, saved)));
    }
  }
}

void BlockEvents::input_gradients(std::size_t index, std::vector<std::int32_t>& temporaries) {
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
    if (regathers(index, tensor) && gathers(tensor, whole)) {
      const ByteCount bytes(gathered_bytes(block_.tensors[slot], produced_[slot], whole, false));
      temporaries.push_back(allocate(as_gathered(context_, tensor, bytes).value()));
    }
    if (has_gradient(tensor) && holds_itself(tensor)) {
      pass_on(input_gradient(index, position), slot);
    }
  }
  if (const std::int64_t sums = query_sums(index); sums > 0) {
    release(allocate(sums));
  }
  if (op.kind == OpKind::Attention) {
    exchange_gradients(index);
  }
}

void BlockEvents::exchange_gradients(std::size_t index) {
  const Operator& op = block_.operators[index];
  std::vector<int> tensors;
  std::vector<std::int64_t> bytes;
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const int tensor = op.inputs[position];
    if (has_gradient(tensor) && exchange_stream(tensor, required(index, position)) > 0 &&
        !gathers(tensor, required(index, position))) {
      tensors.push_back(tensor);
      bytes.push_back(bytes_of(block_.tensors[slot_of(tensor)], required(index, position)));
    }
  }
  if (tensors.empty()) {
    return;
  }
  const std::vector<std::int32_t> exchanged = exchange_heads(bytes, kExchangeStream, false);
  for (std::size_t input = 0; input < tensors.size(); ++input) {
    std::int32_t& gradient = gradient_of_tensor_[slot_of(tensors[input])];
    drop(gradient);
    hold(exchanged[input]);
    gradient = exchanged[input];
  }
}

std::int32_t BlockEvents::input_gradient(std::size_t index, std::size_t position) {
  const int tensor = block_.operators[index].inputs[position];
  const Layout whole = required(index, position);
  if (routed_.quantised && index == routed_.combine && tensor == routed_.returned) {
    return allocate(quantised_bytes(block_.tensors[slot_of(tensor)], whole));
  }
  const auto held_as = [&](bool part) {
    return sum_held(tensor, [&](int held) {
      const auto slot = slot_of(held);
      return bytes_of(block_.tensors[slot], part ? gradient_of(produced_[slot]) : whole);
    });
  };
  const std::int64_t bytes = held_as(false);
  const std::int64_t kept = held_as(true);
  const std::int32_t buffer = allocate(bytes);
  if (kept < bytes) {
    const std::int32_t part = allocate(kept);
    if (facts_.whole_gradients_stay) {
      whole_gradients_.push_back(buffer);
    } else {
      release(buffer);
    }
    return part;
  }
  return buffer;
}

void BlockEvents::weight_gradient(std::size_t index) {
  const std::int64_t bytes = weight_gradient_bytes(index);
  if (bytes == 0) {
    return;
  }
  const bool whole = copies_.of_weights(index) != GatheredCopy::Dropped;
  const std::int64_t sums = gathered_weights(index, whole);
  const std::int32_t partial =  // before the mesh scatters its sums to where weights are stored
      sums > 0 ? allocate(sums) : -1;
  if (gathered_) {
    result_.weight_gradients.push_back(allocate(bytes));
  } else if (has_placeholder(index)) {
    keep_for_all(MemoryEvent::kPlaceholder, placeholder_bytes(index));
  } else {
    release(allocate(bytes));
  }
  release(partial);
}

void BlockEvents::list_read_by_weight_gradient(std::size_t index,
                                               std::vector<std::int32_t>& temporaries) {
  const Operator& op = block_.operators[index];
  if (!models::is_gemm(op) || !models::gives_weight_gradient(block_, op)) {
    return;
  }
  const std::int32_t cast = cast_inputs_[index];
  result_.for_weight_grads.push_back(cast >= 0 ? cast : buffer_of_[slot_of(op.inputs.front())]);
  for (const int output : op.outputs) {
    const std::int32_t gathered = gathered_gradients_[slot_of(output)];
    std::int32_t gradient = gathered >= 0 ? gathered : gradient_of_tensor_[slot_of(output)];
    if (keeps_cast(context_, op) && gradient >= 0) {
      gradient = allocate(cast_gradients(index, output));
      temporaries.push_back(gradient);
    }
    result_.for_weight_grads.push_back(gradient);
  }
}

std::int64_t BlockEvents::cast_gradients(std::size_t index, int output) const {
  const auto bytes = [&](int tensor) { return cast_gradient_bytes(tensor); };
  if (index != attention_.split) {
    return sum_held(output, bytes);
  }
  std::int64_t sum = 0;
  for (const int part : block_.operators[index].outputs) {
    sum += bytes(part);
  }
  return sum;
}

void BlockEvents::release_leftovers() {
  release_all(scattered_);
  if (block_.memory >= 0 && block_.memory != block_.input) {
    // Added to what the other blocks of the decoder give an encoder's output.
    std::int32_t& gradient = gradient_of_tensor_[slot_of(block_.memory)];
    if (gradient >= 0) {
      release(std::exchange(gradient, -1));
    }
  }
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

}  // namespace orrery::plan
