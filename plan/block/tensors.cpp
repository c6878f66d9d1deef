// SPDX-License-Identifier: Apache-2.0
#include "plan/block/tensors.hpp"

#include <algorithm>

#include "base/math.hpp"
#include "plan/block/kept.hpp"
#include "plan/block/operator_replay.hpp"
#include "plan/block/quantised_casts.hpp"
#include "plan/block/saved.hpp"
#include "plan/block/step_list.hpp"

namespace orrery::plan {

using models::Operator;
using models::OpKind;
using models::Saved;
using models::Tensor;

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

BlockTensors::BlockTensors(const BlockContext& context, const MemoryFacts& facts)
    : context_(context),
      block_(context.block),
      facts_(facts),
      rules_(rules_of(context.layout, context.execution.vocab_parallel)),
      produced_(produced_layouts(block_, rules_)),
      kept_(kept_by_operators(context, context.layout.recompute)),
      copies_(context) {
  for (const Operator& op : block_.operators) {
    assignments_.push_back(assign(block_, op, rules_.of(op)));
  }
  find_holders();
  find_routed();
  find_attention();
  find_order();
}

std::int64_t BlockTensors::bytes_of(const Tensor& tensor, const Layout& layout) const {
  return local_elements(tensor, layout, context_.mesh, context_.extents) *
         element_bytes(tensor.element, context_.precision);
}

std::int64_t BlockTensors::quantised_bytes(const Tensor& tensor, const Layout& layout) const {
  const std::int64_t elements = local_elements(tensor, layout, context_.mesh, context_.extents);
  return static_cast<std::int64_t>(static_cast<double>(elements) * kQuantisedTokenBytes);
}

std::int64_t BlockTensors::stream_bytes(int tensor) const {
  return bytes_of(block_.tensors[slot_of(tensor)], stream_layout(rules_));
}

std::int64_t BlockTensors::weight_elements(std::size_t index, int weight) const {
  const Tensor& tensor = block_.tensors[slot_of(weight)];
  const Operator& op = block_.operators[index];
  return local_elements(tensor, stored_weight(op, tensor, assignments_[index], rules_.of(op)),
                        context_.mesh, {});
}

std::int64_t BlockTensors::gemm_elements(std::size_t index) const {
  const Operator& op = block_.operators[index];
  std::int64_t sum = 0;
  for (const int weight : op.weights) {
    const Tensor& tensor = block_.tensors[slot_of(weight)];
    const bool product = std::any_of(tensor.dims.begin(), tensor.dims.end(), [&](const auto& dim) {
      return std::find(op.reduced.begin(), op.reduced.end(), dim.var) != op.reduced.end();
    });
    sum += product && !tensor.frozen ? weight_elements(index, weight) : 0;
  }
  return sum;
}

std::int64_t BlockTensors::weight_gradient_bytes(std::size_t index) const {
  const Operator& op = block_.operators[index];
  std::int64_t elements = models::is_gemm(op) ? gemm_elements(index) : 0;
  for (const int weight : op.kind == OpKind::Embedding ? op.weights : std::vector<int>()) {
    elements += block_.tensors[slot_of(weight)].frozen ? 0 : weight_elements(index, weight);
  }
  return elements * element_bytes(models::Element::Param, context_.precision);
}

std::int64_t BlockTensors::local_experts(std::size_t index) const {
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

void BlockTensors::list_weights(BlockMemory& memory) const {
  for (std::size_t index = 0; index < block_.operators.size(); ++index) {
    const Operator& op = block_.operators[index];
    std::int64_t all = 0;
    std::int64_t frozen = 0;
    for (const int weight : op.weights) {
      (block_.tensors[slot_of(weight)].frozen ? frozen : all) += weight_elements(index, weight);
    }
    if (frozen > 0) {
      memory.frozen.push_back(frozen);
    }
    if (op.kind == OpKind::GroupedGemm) {
      const std::int64_t experts = std::max<std::int64_t>(1, local_experts(index));
      memory.experts.insert(memory.experts.end(), static_cast<std::size_t>(experts), all / experts);
    } else {
      memory.weights.push_back(all);
    }
  }
}

bool BlockTensors::is_scattered(int tensor) const {
  const Layout stream = stream_layout(rules_);
  for (int index = 0; index < kNumAxes; ++index) {
    const auto axis = static_cast<Axis>(index);
    if (produced_[slot_of(tensor)][axis].is_partial() && context_.mesh.of(axis) > 1 &&
        stream[axis].is_sharded()) {
      return true;
    }
  }
  return false;
}

bool BlockTensors::read_after(std::size_t index, int tensor) const {
  for (std::size_t later = 0; later < block_.operators.size(); ++later) {
    if (rank_[later] > rank_[index] && contains(block_.operators[later].inputs, tensor)) {
      return true;
    }
  }
  return false;
}

Layout BlockTensors::required(std::size_t index, std::size_t position) const {
  const Operator& op = block_.operators[index];
  return required_input(op, block_.tensors[slot_of(op.inputs[position])],
                        static_cast<int>(position), assignments_[index]);
}

bool BlockTensors::makes(int tensor, const Layout& to, sim::CommKind kind) const {
  const std::vector<Conversion> needed = conversions(produced_[slot_of(tensor)], to);
  return std::any_of(needed.begin(), needed.end(), [&](const Conversion& conversion) {
    return conversion.kind == kind && context_.mesh.of(conversion.axis) > 1;
  });
}

bool BlockTensors::gathers(int tensor, const Layout& to) const {
  return makes(tensor, to, sim::CommKind::AllGather);
}

bool BlockTensors::scatters(int tensor, const Layout& to) const {
  return makes(tensor, to, sim::CommKind::ReduceScatter);
}

bool BlockTensors::moves(int tensor, const Layout& to) const {
  return scatters(tensor, to) || makes(tensor, to, sim::CommKind::AllToAll);
}

bool BlockTensors::takes_part(std::size_t index, int tensor) const {
  const bool kept = std::any_of(kept_[index].begin(), kept_[index].end(), [&](const Saved& saved) {
    return saved.tensor == tensor && is_tensor_itself(saved);
  });
  if (!kept) {
    return false;
  }
  const Layout& made = produced_[slot_of(tensor)];
  const Layout layout = saved_layout(block_, rules_, block_.operators[index], tensor, produced_);
  return std::any_of(kAxes.begin(), kAxes.end(), [&](Axis axis) {
    return context_.mesh.of(axis) > 1 && made[axis].is_replicated() && layout[axis].is_sharded();
  });
}

std::int64_t BlockTensors::gathered_bytes(const Tensor& tensor, const Layout& from,
                                          const Layout& to, bool waits) const {
  bool gathers = false;
  std::int64_t parts = 1;
  for (const Conversion& conversion : conversions(from, to)) {
    const int ranks = context_.mesh.of(conversion.axis);
    if (conversion.kind == sim::CommKind::AllGather && ranks > 1) {
      gathers = true;
      parts *= is_summa(context_.layout, conversion.axis) ? ranks : 1;
    }
  }
  if (!gathers) {
    return 0;
  }
  std::int64_t whole = bytes_of(tensor, to);
  const auto index = static_cast<int>(&tensor - block_.tensors.data());
  if (contains(read_by_later_slices(context_), index)) {
    whole = whole / context_.extents.sequence * context_.extents.keys;  // of earlier slices, too
  }
  return parts > 1 && !waits ? ceil_div(2 * whole, parts) : whole;
}

std::int64_t BlockTensors::gathered_weights(std::size_t index, bool waits) const {
  const Operator& op = block_.operators[index];
  std::int64_t bytes = 0;
  for (const int weight : op.weights) {
    const Tensor& tensor = block_.tensors[slot_of(weight)];
    bytes += gathered_bytes(tensor, stored_weight(op, tensor, assignments_[index], rules_.of(op)),
                            required_input(op, tensor, 0, assignments_[index]), waits);
  }
  return bytes;
}

bool BlockTensors::in_gather_buffer() const {
  return facts_.gather_buffer && block_.kind == models::BlockKind::Head &&
         context_.layout.sequence_parallel;
}

bool BlockTensors::regathers(std::size_t index, int tensor) const {
  const Operator& op = block_.operators[index];
  return models::is_gemm(op) && models::gives_weight_gradient(block_, op) &&
         copies_.of_input(index, tensor) == GatheredCopy::Dropped && !in_gather_buffer();
}

namespace {

bool is_cut_by_heads(Placement placement) {
  return placement.is_sharded() && placement.var() == Var::Head;
}

// Tokens for heads or back, around attention.
bool exchanges_heads(const Conversion& conversion) {
  return conversion.kind == sim::CommKind::AllToAll &&
         (is_cut_by_heads(conversion.before[conversion.axis]) ||
          is_cut_by_heads(conversion.after[conversion.axis]));
}

}  // namespace

int BlockTensors::exchange_stream(int tensor, const Layout& to) const {
  const std::vector<Conversion> needed = conversions(produced_[slot_of(tensor)], to);
  const bool exchanges =
      facts_.exchange_stream &&
      std::any_of(needed.begin(), needed.end(), [&](const Conversion& conversion) {
        return exchanges_heads(conversion) && context_.mesh.of(conversion.axis) > 1;
      });
  return exchanges ? kExchangeStream : 0;
}

bool BlockTensors::has_placeholder(std::size_t index) const {
  const bool module = block_.kind == models::BlockKind::Layer ||
                      (block_.kind == models::BlockKind::Head && facts_.output_placeholder);
  return facts_.weight_gradient == WeightGradient::Cached &&
         models::is_gemm(block_.operators[index]) && module;
}

std::int64_t BlockTensors::placeholder_bytes(std::size_t index) const {
  const bool grouped = block_.operators[index].kind == OpKind::GroupedGemm;
  const std::int64_t experts = grouped ? std::max<std::int64_t>(1, local_experts(index)) : 1;
  return weight_gradient_bytes(index) / experts;
}

std::int64_t BlockTensors::query_sums(std::size_t index) const {
  const Operator& op = block_.operators[index];
  if (op.kind != OpKind::Attention || !context_.execution.fused_attention) {
    return 0;
  }
  const Tensor& query = block_.tensors[slot_of(op.inputs.front())];
  return 4 * local_elements(query, required(index, 0), context_.mesh, context_.extents);
}

int BlockTensors::attention_of(int tensor) const {
  for (std::size_t index = 0; index < block_.operators.size(); ++index) {
    const Operator& op = block_.operators[index];
    if (op.kind == OpKind::Attention && context_.execution.fused_attention &&
        models::has_backward(block_, op) && contains(op.outputs, tensor)) {
      return static_cast<int>(index);
    }
  }
  return -1;
}

bool BlockTensors::keeps_result(int attention) const {
  const Operator& op = block_.operators[slot_of(attention)];
  return std::any_of(op.saved.begin(), op.saved.end(),
                     [&](const Saved& saved) { return contains(op.outputs, saved.tensor); });
}

std::int64_t BlockTensors::extra_bytes(std::size_t index, const Saved& saved) const {
  const Tensor& tensor = block_.tensors[slot_of(saved.tensor)];
  const Layout layout =
      saved_layout(block_, rules_, block_.operators[index], saved.tensor, produced_);
  const double elements =
      static_cast<double>(local_elements(tensor, layout, context_.mesh, context_.extents));
  return static_cast<std::int64_t>(elements * saved.copies) *
         element_bytes(saved.element, context_.precision);
}

std::int64_t BlockTensors::cast_gradient_bytes(int tensor) const {
  const std::int64_t bytes =
      bytes_of(block_.tensors[slot_of(tensor)], gradient_of(produced_[slot_of(tensor)]));
  return static_cast<std::int64_t>(static_cast<double>(bytes) * cast_share(context_));
}

bool BlockTensors::is_produced(int tensor) const {
  return std::any_of(block_.operators.begin(), block_.operators.end(),
                     [&](const Operator& op) { return contains(op.outputs, tensor); });
}

bool BlockTensors::is_tensor_itself(const Saved& saved) const {
  const Tensor& tensor = block_.tensors[slot_of(saved.tensor)];
  return saved.copies == 1.0 && saved.element == tensor.element &&
         (is_produced(saved.tensor) || saved.tensor == block_.input);
}

LossMemory BlockTensors::loss_memory() const {
  if (context_.execution.eager_loss && !context_.execution.fused_cross_entropy) {
    const bool sharded = facts_.loss == LossMemory::Sharded && context_.mesh.of(Axis::Tensor) > 1 &&
                         context_.execution.vocab_parallel;
    return sharded ? LossMemory::Sharded : LossMemory::Eager;
  }
  return facts_.loss == LossMemory::InLogits ? LossMemory::InLogits : LossMemory::InPlace;
}

std::int64_t BlockTensors::fp32_logits(std::size_t index) const {
  const Operator& op = block_.operators[index];
  const Tensor& logits = block_.tensors[slot_of(op.inputs.front())];
  return 4 * local_elements(logits, required_input(op, logits, 0, assignments_[index]),
                            context_.mesh, context_.extents);
}

bool BlockTensors::passes_through(const Operator& op) const {
  // Two operands a sum; a rotation or scaling has one, and its gradient is a tensor of its own.
  const bool addition = op.kind == OpKind::Elementwise && op.pointwise && op.saved.empty() &&
                        op.inputs.size() + op.weights.size() >= 2 * op.outputs.size();
  if (!addition) {
    return false;
  }
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const Tensor& input = block_.tensors[slot_of(op.inputs[position])];
    const Tensor& output = block_.tensors[slot_of(op.outputs[position % op.outputs.size()])];
    if (input.dims.size() != output.dims.size() ||
        bytes_of(input, stream_layout(rules_)) != bytes_of(output, stream_layout(rules_))) {
      return false;
    }
  }
  return op.role != models::OpRole::Rotary;
}

bool BlockTensors::has_gradient(int tensor) const {
  const Tensor& value = block_.tensors[slot_of(tensor)];
  return !value.frozen && value.element != models::Element::Int64 &&
         value.element != models::Element::Mask &&
         (is_produced(tensor) || tensor == block_.input || tensor == block_.memory);
}

bool BlockTensors::saved_before(std::size_t index, int tensor) const {
  for (std::size_t earlier = 0; earlier < block_.operators.size(); ++earlier) {
    for (const Saved& saved : kept_[earlier]) {
      if (rank_[earlier] < rank_[index] && saved.tensor == tensor && is_tensor_itself(saved)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace orrery::plan
