// SPDX-License-Identifier: Apache-2.0
#include "plan/block/memory.hpp"

#include "plan/block/kept.hpp"
#include "plan/block/memory_events.hpp"
#include "plan/block/quantised_casts.hpp"
#include "plan/block/saved.hpp"

namespace orrery::plan {

using models::Operator;
using models::OpKind;
using models::Saved;

BlockEvents::BlockEvents(const BlockContext& context, const MemoryFacts& facts, bool gathered,
                         bool casts)
    : BlockTensors(context, facts),
      gathered_(gathered),
      casts_(casts),
      buffer_of_(block_.tensors.size(), -1),
      is_kept_(block_.tensors.size(), false),
      moved_(block_.tensors.size(), false),
      cast_inputs_(block_.operators.size(), -1),
      gathered_gradients_(block_.tensors.size(), -1) {
  gradient_of_tensor_.assign(block_.tensors.size(), -1);
  result_.input = block_.input >= 0 ? new_buffer() : -1;
  const int between = block_.output >= 0 ? block_.output : block_.input;
  result_.boundary = between >= 0 ? stream_bytes(between) : 0;
  result_.carried = carried_by(context);
  list_weights(result_);
}

BlockMemory BlockEvents::run() {
  const bool layer = block_.kind == models::BlockKind::Layer;
  const bool full = block_.frozen || (layer && context_.layout.recompute == Recompute::Full);
  const bool products = layer && context_.layout.recompute == Recompute::Products;
  const bool chosen = layer && context_.layout.recompute == Recompute::Operators;
  chosen_ = replay_of(context_);
  events_ = &result_.forward;
  set_input();
  forward(full ? Keep::Nothing : products ? Keep::Products : chosen ? Keep::Chosen : Keep::Saved);
  if (chosen && !full && block_.input >= 0 && chosen_.kept[slot_of(block_.input)]) {
    is_kept_[slot_of(block_.input)] = true;  // an operator that runs again reads it
  }
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

void BlockEvents::set_input() {
  if (block_.input >= 0) {
    buffer_of_[slot_of(block_.input)] = result_.input;
  }
}

void BlockEvents::forward(Keep keep) {
  if (!replaying_) {
    extras_.assign(block_.operators.size(), {});
  }
  const std::vector<int> products = kept_products(context_);
  for (const std::size_t index : order_) {
    if (!replaying_ || chosen_.runs[index]) {
      forward_operator(index, keep, products);
    }
    end_layers(index);
  }
}

void BlockEvents::end_layers(std::size_t index) {
  if (routed_.holds && index == routed_.end) {
    release_all(variables_);
  }
  if (index == attention_.end) {
    release_all(attention_variables_);
  }
}

void BlockEvents::forward_operator(std::size_t index, Keep keep, const std::vector<int>& products) {
  const Operator& op = block_.operators[index];
  std::vector<std::int32_t> temporaries;
  group_ = group_of(block_, op);
  const bool keeps =
      waits(copies_.of_weights(index), keep) && models::gives_input_gradient(block_, op);
  if (const std::int64_t bytes = gathered_weights(index, keeps); bytes > 0) {
    (keeps ? extras_[index] : temporaries).push_back(allocate(bytes));
  }
  if (index == attention_.core) {
    copy_value();
    exchange_for_heads(index, keep);
  }
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    convert(index, position, keep, temporaries);
  }
  if (index == attention_.split) {
    create_views(index);
  }
  for (const int output : op.outputs) {
    create(output, (keep == Keep::Products && contains(products, output)) ||
                       (keep == Keep::Chosen && chosen_.kept[slot_of(output)]));
  }
  if (op.kind == OpKind::CrossEntropy) {
    leave_logits(op.inputs.front());
    loss_forward(loss_memory(), fp32_logits(index), temporaries);
  }
  cast_weights(index, false, temporaries);
  save(index, keep);
  release_all(temporaries);
  release_tensors(
      index, [&](int tensor) { return is_kept_[slot_of(tensor)] || read_after(index, tensor); });
}

void BlockEvents::leave_logits(int tensor) {
  if (facts_.keeps_last_outputs) {
    left_ = result_.logits = buffer_of_[slot_of(tensor)];
  }
}

void BlockEvents::convert(std::size_t index, std::size_t position, Keep keep,
                          std::vector<std::int32_t>& temporaries) {
  const int tensor = block_.operators[index].inputs[position];
  const Layout to = required(index, position);
  if (gathers(tensor, to)) {
    if (!moved_[slot_of(tensor)] && scatters(tensor, to)) {
      move_input(index, tensor, kept_layout(produced_[slot_of(tensor)], to), keep);
    }
    gather_input(index, position, keep, temporaries);
  } else if (moved_[slot_of(tensor)]) {
    return;
  } else if (is_routed(index, tensor)) {
    route(index, tensor);
  } else if (moves(tensor, to)) {
    move_input(index, tensor, to, keep);
  } else if (keep != Keep::Products && takes_part(index, tensor)) {
    move_input(index, tensor,
               saved_layout(block_, rules_, block_.operators[index], tensor, produced_), keep);
  }
}

void BlockEvents::gather_input(std::size_t index, std::size_t position, Keep keep,
                               std::vector<std::int32_t>& temporaries) {
  const Operator& op = block_.operators[index];
  const int tensor = op.inputs[position];
  const models::Tensor& value = block_.tensors[slot_of(tensor)];
  const Layout& from = produced_[slot_of(tensor)];
  const Layout to = required(index, position);
  const bool product = models::is_gemm(op) && models::gives_weight_gradient(block_, op);
  const bool instead =  // the part here is inside what is kept
      product && waits(copies_.of_input(index, tensor), keep);
  const std::int64_t whole = gathered_bytes(value, from, to, instead);
  if (in_gather_buffer()) {
    keep_for_all(MemoryEvent::kGatherBuffer, whole);
    return;
  }
  const std::int64_t part = instead ? bytes_of(value, kept_layout(from, to)) : 0;
  if (whole > part) {
    const std::int64_t bytes =
        beside_part(context_, tensor, ByteCount(whole), ByteCount(part)).value();
    (instead ? extras_[index] : temporaries).push_back(allocate(bytes));
  }
}

void BlockEvents::move_input(std::size_t index, int tensor, const Layout& to, Keep keep) {
  const Operator& op = block_.operators[index];
  const auto slot = slot_of(tensor);
  group_ = maker_of(block_, tensor);
  const std::int64_t bytes = bytes_of(block_.tensors[slot], to);
  const int stream = exchange_stream(tensor, to);
  const std::int32_t buffer =
      stream > 0 ? exchange_heads({bytes}, stream, false).front() : allocate(bytes);
  group_ = group_of(block_, op);
  const int producer = attention_of(tensor);
  const bool chosen = keep == Keep::Chosen && producer >= 0 && !chosen_.loses[slot_of(producer)];
  const bool saved = keep == Keep::Saved && context_.layout.recompute != Recompute::Selective;
  const bool both =
      producer >= 0 && keeps_both_results(context_, block_.operators[slot_of(producer)]);
  if (both && (saved || chosen)) {
    extras_[slot_of(producer)].push_back(buffer_of_[slot]);
    is_kept_[slot] = is_kept_[slot] && !keeps_result(producer);
  } else if (keep == Keep::Products && is_kept_[slot] && !keeps_reduced_alone(context_, tensor)) {
    scattered_.push_back(buffer_of_[slot]);
  } else if (tensor != block_.input) {
    release(buffer_of_[slot]);
  }
  buffer_of_[slot] = buffer;
  moved_[slot] = true;
  // Per-operator checkpointing keeps what was communicated, too.
  is_kept_[slot] = is_kept_[slot] || keep == Keep::Products;
}

void BlockEvents::create_views(std::size_t index) {
  std::int64_t bytes = 0;
  for (const int output : block_.operators[index].outputs) {
    bytes += bytes_of(block_.tensors[slot_of(output)], produced_[slot_of(output)]);
  }
  attention_variables_.push_back(allocate(bytes));
}

void BlockEvents::copy_value() {
  if (attention_.split == AttentionLayer::kNone) {
    return;
  }
  const auto slot = slot_of(attention_.split_value);
  group_ = maker_of(block_, attention_.split_value);
  buffer_of_[slot] = allocate(bytes_of(block_.tensors[slot], produced_[slot]));
  group_ = group_of(block_, block_.operators[attention_.core]);
  if (attention_.latent) {
    release_all(attention_variables_);
  }
}

void BlockEvents::exchange_for_heads(std::size_t index, Keep keep) {
  const Operator& op = block_.operators[index];
  std::vector<int> tensors;
  std::vector<std::int64_t> bytes;
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const int tensor = op.inputs[position];
    if (!moved_[slot_of(tensor)] && exchange_stream(tensor, required(index, position)) > 0 &&
        !gathers(tensor, required(index, position))) {
      tensors.push_back(tensor);
      bytes.push_back(bytes_of(block_.tensors[slot_of(tensor)], required(index, position)));
    }
  }
  if (tensors.empty() || keep == Keep::Products) {
    return;  // what is kept for itself moves one by one
  }
  const std::vector<std::int32_t> exchanged = exchange_heads(bytes, kExchangeStream, true);
  for (std::size_t input = 0; input < tensors.size(); ++input) {
    const auto slot = slot_of(tensors[input]);
    groups_[slot_of(exchanged[input])] = maker_of(block_, tensors[input]);
    const bool held = attention_.holds && tensors[input] != op.inputs.back();
    if (held && tensors[input] != block_.input) {
      attention_variables_.push_back(buffer_of_[slot]);
    } else if (tensors[input] != block_.input) {
      release(buffer_of_[slot]);
    }
    buffer_of_[slot] = exchanged[input];
    moved_[slot] = true;
  }
}

void BlockEvents::route(std::size_t index, int tensor) {
  const auto slot = slot_of(tensor);
  std::int32_t& buffer = buffer_of_[slot];
  const models::Tensor& value = block_.tensors[slot];
  const bool quantised = routed_.quantised && index == routed_.experts;
  const std::int64_t whole = bytes_of(value, required(index, 0));
  const std::int64_t bytes = quantised ? quantised_bytes(value, required(index, 0)) : whole;
  group_ = maker_of(block_, tensor);
  if (index == routed_.combine && routed_.sorted) {
    const std::int32_t sorted = allocate(bytes);
    release(buffer);
    buffer = sorted;
  }
  if (routed_.exchanged) {
    variables_.push_back(buffer);
    buffer = allocate(bytes);
  }
  if (index == routed_.experts && routed_.sorted) {
    variables_.push_back(buffer);
    buffer = allocate(bytes);
  }
  if (quantised && !is_quantised(context_.precision)) {  // widened for the experts
    variables_.push_back(buffer);
    buffer = allocate(whole);
  }
  group_ = group_of(block_, block_.operators[index]);
  moved_[slot] = true;
}

void BlockEvents::create(int output, bool keep) {
  const auto slot = slot_of(output);
  if (buffer_of_[slot] >= 0) {
    return;  // saved by the first forward, not computed again
  }
  is_kept_[slot] = is_kept_[slot] || keep;
  if (holds_itself(output) && !is_view(output)) {
    buffer_of_[slot] = allocate(sum_held(output, [&](int held) {
      const models::Tensor& value = block_.tensors[slot_of(held)];
      const Layout& layout = produced_[slot_of(held)];
      return routed_.quantised && held == routed_.sent ? quantised_bytes(value, layout)
                                                       : bytes_of(value, layout);
    }));
  }
}

void BlockEvents::save(std::size_t index, Keep keep) {
  const bool in_logits =
      block_.operators[index].kind == OpKind::CrossEntropy && loss_memory() == LossMemory::InLogits;
  for (const Saved& saved : kept_[index]) {
    const auto slot = slot_of(saved.tensor);
    if (in_logits || is_tensor_itself(saved)) {
      is_kept_[slot] = is_kept_[slot] || in_logits || keep == Keep::Saved ||
                       (keep == Keep::Chosen && chosen_.kept[slot]);
    } else if (keep == Keep::Saved || (keep == Keep::Chosen && !chosen_.loses[index])) {
      group_ = kept_with(block_, block_.operators[index], saved);
      extras_[index].push_back(allocate(extra_bytes(index, saved)));
      cast_inputs_[index] = models::is_gemm(block_.operators[index]) ? extras_[index].back() : -1;
    }
  }
}

void BlockEvents::cast_weights(std::size_t index, bool backward,
                               std::vector<std::int32_t>& temporaries) {
  const std::int64_t elements =
      casts_ ? weights_cast_together(context_, block_.operators[index], assignments_[index]) : 0;
  if (elements > 0) {
    const double bytes = static_cast<double>(elements) * pass_cast_bytes(context_, backward);
    temporaries.push_back(allocate(static_cast<std::int64_t>(bytes)));
  }
}

void BlockEvents::take_output() {
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

std::int32_t BlockEvents::replay() {
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

BlockMemory block_memory(const BlockContext& context, const MemoryFacts& facts, bool gathered,
                         bool casts) {
  return BlockEvents(context, facts, gathered, casts).run();
}

}  // namespace orrery::plan
