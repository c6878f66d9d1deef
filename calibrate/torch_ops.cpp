// SPDX-License-Identifier: Apache-2.0
#include "calibrate/torch_ops.hpp"

#include <array>

#include "base/text.hpp"
#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::int64_t kMaxDim = std::int64_t{1} << 31;

bool sound(const Dims& dims, std::size_t rank) {
  if (dims.size() != rank) {
    return false;
  }
  for (const std::int64_t dim : dims) {
    if (dim < 1 || dim > kMaxDim) {
      return false;
    }
  }
  return true;
}

const Dims& input(const TraceEvent& event, std::size_t index) {
  static const Dims kNone;
  return index < event.input_dims.size() ? event.input_dims[index] : kNone;
}

std::optional<DType> dtype_of(const TraceEvent& event, std::size_t index) {
  return index < event.input_types.size() ? foreign_dtype(event.input_types[index]) : std::nullopt;
}

// The operand's rows are not contiguous but its columns are.
bool transposed(const TraceEvent& event, std::size_t index) {
  if (index >= event.input_strides.size() || event.input_strides[index].size() < 2) {
    return false;
  }
  const Dims& strides = event.input_strides[index];
  const Dims& dims = input(event, index);
  return dims.size() == strides.size() && strides[strides.size() - 2] == 1 &&
         dims[dims.size() - 1] > 1;
}

std::optional<Shape> multiplication(const TraceEvent& event, std::size_t a, bool batched) {
  const std::size_t rank = batched ? 3 : 2;
  const Dims& left = input(event, a);
  const Dims& right = input(event, a + 1);
  const std::optional<DType> dtype = dtype_of(event, a);
  if (!sound(left, rank) || !sound(right, rank) || !dtype || left[rank - 1] != right[rank - 2] ||
      (batched && left[0] != right[0])) {
    return std::nullopt;
  }
  GemmSample gemm{.m = left[rank - 2],
                  .n = right[rank - 1],
                  .k = left[rank - 1],
                  .groups = batched ? left[0] : 1,
                  .dtype = *dtype,
                  .batched = batched};
  gemm.output = unquantised(*dtype);
  // x W^T has its weight transposed, the weight gradient dY^T x its left operand; without strides
  // the forward pass is assumed.
  gemm.layout = transposed(event, a)                                      ? GemmLayout::NT
                : transposed(event, a + 1) || event.input_strides.empty() ? GemmLayout::TN
                                                                          : GemmLayout::NN;
  return gemm;
}

struct AttentionOperator {
  std::string_view name;
  std::size_t query;   // position of the query; key and value follow
  std::size_t causal;  // position of is_causal
  bool heads_first;    // [batch, heads, length, dim] instead of [batch, length, heads, dim]
  bool backward;
};

constexpr std::array<AttentionOperator, 4> kAttention = {
    {{"aten::_flash_attention_forward", 0, 8, false, false},
     {"aten::_flash_attention_backward", 1, 11, false, true},
     {"aten::_scaled_dot_product_flash_attention", 0, 4, true, false},
     {"aten::_scaled_dot_product_cudnn_attention", 0, 6, true, false}}};

std::optional<Shape> attention(const TraceEvent& event, const AttentionOperator& op) {
  const Dims& query = input(event, op.query);
  const Dims& key = input(event, op.query + 1);
  const Dims& value = input(event, op.query + 2);
  const std::optional<DType> dtype = dtype_of(event, op.query);
  if (!sound(query, 4) || !sound(key, 4) || !sound(value, 4) || !dtype ||
      op.causal >= event.concrete_inputs.size()) {
    return std::nullopt;
  }
  const std::string causal = to_lower(event.concrete_inputs[op.causal]);
  if (causal != "true" && causal != "false") {
    return std::nullopt;
  }
  const std::size_t heads = op.heads_first ? 1 : 2;
  const std::size_t length = op.heads_first ? 2 : 1;
  if (query[heads] % key[heads] != 0) {
    return std::nullopt;
  }
  return AttentionSample{.batch = query[0],
                         .heads = query[heads],
                         .kv_heads = key[heads],
                         .q_len = query[length],
                         .kv_len = key[length],
                         .head_dim = query[3],
                         .value_head_dim = value[3],
                         .causal = causal == "true",
                         .dtype = *dtype,
                         .backward = op.backward};
}

}  // namespace

std::optional<Shape> torch_shape(const TraceEvent& event) {
  if (event.name == "aten::mm" || event.name == "aten::_scaled_mm") {
    return multiplication(event, 0, false);
  }
  if (event.name == "aten::addmm") {
    return multiplication(event, 1, false);
  }
  if (event.name == "aten::bmm") {
    return multiplication(event, 0, true);
  }
  for (const AttentionOperator& op : kAttention) {
    if (op.name == event.name) {
      return attention(event, op);
    }
  }
  return std::nullopt;
}

std::int64_t torch_element_bytes(std::string_view dtype) {
  struct Entry {
    std::string_view name;
    std::int64_t bytes;
  };
  constexpr std::array<Entry, 12> kTypes = {{{"BFloat16", 2},
                                             {"Half", 2},
                                             {"Float", 4},
                                             {"Double", 8},
                                             {"Byte", 1},
                                             {"Char", 1},
                                             {"Bool", 1},
                                             {"Short", 2},
                                             {"Int", 4},
                                             {"Long", 8},
                                             {"Float8_e4m3fn", 1},
                                             {"Float8_e5m2", 1}}};
  for (const Entry& entry : kTypes) {
    if (entry.name == dtype) {
      return entry.bytes;
    }
  }
  return 0;
}

std::optional<CollectiveSample> torch_collective(const TraceEvent& event) {
  CollectiveSample sample;
  sample.kind = event.collective == "send" || event.collective == "recv"
                    ? sim::CommKind::SendReceive
                    : foreign_collective(event.collective);
  const std::int64_t element = torch_element_bytes(event.dtype);
  const std::int64_t elements =
      sample.kind == sim::CommKind::AllGather ? event.out_elements : event.in_elements;
  if (sample.kind == sim::CommKind::None || element == 0 || elements < 1 ||
      elements > (std::int64_t{1} << 50) || event.group_size < 2 || event.group_size > (1 << 20)) {
    return std::nullopt;
  }
  sample.bytes = elements * element;
  sample.ranks = sample.kind == sim::CommKind::SendReceive ? 2 : event.group_size;
  sample.ranks_per_node = sample.ranks;
  return sample;
}

}  // namespace orrery::calibrate
