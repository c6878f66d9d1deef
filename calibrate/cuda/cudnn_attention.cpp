// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/cudnn_attention.hpp"

#include <cmath>
#include <limits>
#include <list>
#include <utility>

#include "calibrate/cuda/cudnn_graph.hpp"

namespace orrery::calibrate::cuda {
namespace {

using Tensor = CudnnGraph::Tensor;

Extents swapped(Extents extents) {
  std::swap(extents[2], extents[3]);
  return extents;
}

struct Builder {
  Builder(CudnnGraph& to, const AttentionSample& sample, const Allocate& memory)
      : graph(to),
        shape(sample),
        allocate(memory),
        element(sample.dtype == DType::Fp16 ? Element::Fp16 : Element::Bf16) {}

  void forward();
  void backward();

  // A tensor batch x heads x length x width, stored batch x length x heads x width.
  struct Operand {
    Extents extents;
    Extents strides;
    void* data;
  };
  Operand operand(std::int64_t heads, std::int64_t length, std::int64_t width) {
    const auto count = static_cast<std::size_t>(shape.batch * heads * length * width);
    return {{shape.batch, heads, length, width},
            {length * heads * width, width, heads * width, 1},
            allocate(count, shape.dtype)};
  }
  Tensor stored(const Operand& operand) {
    return graph.stored(operand.extents, operand.strides, element, operand.data);
  }
  Tensor transposed(const Operand& operand) {
    return graph.stored(swapped(operand.extents), swapped(operand.strides), element, operand.data);
  }
  // One fp32 number a row of scores.
  Tensor stored_rows() {
    const auto count = static_cast<std::size_t>(shape.batch * shape.heads * shape.q_len);
    return graph.stored(row_extents(), row_strides(), Element::Fp32, allocate(count, DType::Fp32));
  }

  Extents score_extents() const { return {shape.batch, shape.heads, shape.q_len, shape.kv_len}; }
  Extents row_extents() const { return {shape.batch, shape.heads, shape.q_len, 1}; }
  Extents row_strides() const { return {shape.heads * shape.q_len, shape.q_len, 1, 1}; }
  Tensor passing_rows() { return graph.passing(row_extents(), row_strides(), Element::Fp32); }

  Tensor scaled_scores(Tensor q, Tensor k_transposed, Tensor scale);
  Tensor masked(Tensor scores);
  Tensor transposed_probabilities(Tensor scores);
  void sum_over_groups(Tensor result, std::int64_t width, Tensor a, Tensor b);

  CudnnGraph& graph;
  const AttentionSample& shape;
  const Allocate& allocate;
  Element element;
};

Tensor Builder::scaled_scores(Tensor q, Tensor k_transposed, Tensor scale) {
  const Tensor scores = graph.passing(score_extents(), Element::Fp32);
  graph.multiply_into(scores, q, k_transposed);
  return graph.apply(Pointwise::Multiply, scores, scale);
}

// Keys after the query, and with a window those too far before it, count as minus infinity.
Tensor Builder::masked(Tensor scores) {
  if (!shape.causal) {
    return scores;
  }
  const float nothing = -std::numeric_limits<float>::infinity();
  Tensor row = graph.apply(Pointwise::RowIndex, scores);
  Tensor column = graph.apply(Pointwise::ColumnIndex, scores);
  Tensor kept = graph.apply(Pointwise::GreaterOrEqual, row, column);
  scores = graph.apply(Pointwise::Select, scores, graph.value(nothing), kept);
  if (shape.window > 0) {
    row = graph.apply(Pointwise::RowIndex, scores);
    column = graph.apply(Pointwise::ColumnIndex, scores);
    column = graph.apply(Pointwise::Add, column, graph.value(static_cast<float>(shape.window)));
    kept = graph.apply(Pointwise::Greater, column, row);
    scores = graph.apply(Pointwise::Select, scores, graph.value(nothing), kept);
  }
  return scores;
}

void Builder::forward() {
  const Tensor q = stored(operand(shape.heads, shape.q_len, shape.head_dim));
  const Tensor k = transposed(operand(shape.kv_heads, shape.kv_len, shape.head_dim));
  const Tensor v = stored(operand(shape.kv_heads, shape.kv_len, shape.value_head_dim));
  const Tensor out = stored(operand(shape.heads, shape.q_len, shape.value_head_dim));
  const Tensor statistics = stored_rows();
  const Tensor scale = graph.value(1.0F / std::sqrt(static_cast<float>(shape.head_dim)));

  const Tensor scores = masked(scaled_scores(q, k, scale));
  const Tensor largest = passing_rows();
  graph.reduce_into(largest, Reduction::Max, scores);
  const Tensor shifted = graph.apply(Pointwise::Subtract, scores, largest);
  const Tensor powers = graph.apply(Pointwise::Exp, shifted);
  const Tensor sum = passing_rows();
  graph.reduce_into(sum, Reduction::Sum, powers);
  const Tensor logarithm = passing_rows();
  graph.apply_into(logarithm, Pointwise::Log, sum);
  graph.apply_into(statistics, Pointwise::Add, largest, logarithm);
  const Tensor probabilities = graph.passing(score_extents(), element);
  graph.apply_into(probabilities, Pointwise::Divide, powers, sum);
  graph.multiply_into(out, probabilities, v);
}

// Scores as batch x heads x kv x q, in 16 bits, for the products that sum over queries.
Tensor Builder::transposed_probabilities(Tensor scores) {
  const std::int64_t all = shape.q_len * shape.kv_len;
  const Tensor result = graph.passing({shape.batch, shape.heads, shape.kv_len, shape.q_len},
                                      {shape.heads * all, all, 1, shape.kv_len}, element);
  graph.reshape_into(result, scores);
  return result;
}

// Gradients of keys or values: the query heads of one group add up.
void Builder::sum_over_groups(Tensor result, std::int64_t width, Tensor a, Tensor b) {
  if (shape.heads == shape.kv_heads) {
    graph.multiply_into(result, a, b);
    return;
  }
  const Tensor all_heads = graph.passing({shape.batch, shape.heads, shape.kv_len, width}, element);
  graph.multiply_into(all_heads, a, b);
  graph.reduce_into(result, Reduction::Sum, all_heads);
}

void Builder::backward() {
  const Operand q = operand(shape.heads, shape.q_len, shape.head_dim);
  const Operand k = operand(shape.kv_heads, shape.kv_len, shape.head_dim);
  const Operand v = operand(shape.kv_heads, shape.kv_len, shape.value_head_dim);
  const Tensor queries = stored(q);
  const Tensor keys = transposed(k);
  const Tensor values = transposed(v);
  const Tensor out = stored(operand(shape.heads, shape.q_len, shape.value_head_dim));
  const Tensor d_out = stored(operand(shape.heads, shape.q_len, shape.value_head_dim));
  const Tensor d_q = stored(operand(shape.heads, shape.q_len, shape.head_dim));
  const Tensor d_k = stored(operand(shape.kv_heads, shape.kv_len, shape.head_dim));
  const Tensor d_v = stored(operand(shape.kv_heads, shape.kv_len, shape.value_head_dim));
  const Tensor statistics = stored_rows();
  const Tensor scale = graph.value(1.0F / std::sqrt(static_cast<float>(shape.head_dim)));

  // Row sums of out x gradient; a stored tensor, since two kernels use it.
  const Tensor product =
      graph.passing({shape.batch, shape.heads, shape.q_len, shape.value_head_dim},
                    {shape.heads * shape.q_len * shape.value_head_dim,
                     shape.q_len * shape.value_head_dim, shape.heads * shape.value_head_dim, 1},
                    Element::Fp32);
  graph.apply_into(product, Pointwise::Multiply, d_out, out);
  const Tensor row_sums = passing_rows();
  graph.reduce_into(row_sums, Reduction::Sum, product);
  const Tensor deltas = stored_rows();
  graph.apply_into(deltas, Pointwise::Multiply, row_sums, graph.value(1.0F));

  const Tensor scores = scaled_scores(queries, keys, scale);
  const Tensor shifted = masked(graph.apply(Pointwise::Subtract, scores, statistics));
  const Tensor probabilities = graph.apply(Pointwise::Exp, shifted);
  sum_over_groups(d_v, shape.value_head_dim, transposed_probabilities(probabilities), d_out);

  const Tensor d_probabilities = graph.passing(score_extents(), Element::Fp32);
  graph.multiply_into(d_probabilities, d_out, values);
  const Tensor centred = graph.apply(Pointwise::Subtract, d_probabilities, deltas);
  const Tensor weighted = graph.apply(Pointwise::Multiply, centred, probabilities);
  const Tensor d_scores = graph.apply(Pointwise::Multiply, weighted, scale);
  sum_over_groups(d_k, shape.head_dim, transposed_probabilities(d_scores), queries);

  const Tensor plain_keys = graph.passing(k.extents, k.strides, Element::Fp32);
  graph.reshape_into(plain_keys, keys);
  const std::int64_t of_head = shape.q_len * shape.head_dim;
  const auto count = static_cast<std::size_t>(shape.batch * shape.heads * of_head);
  const Tensor accumulated =
      graph.stored(q.extents, {shape.heads * of_head, of_head, shape.head_dim, 1}, Element::Fp32,
                   allocate(count, DType::Fp32));
  graph.multiply_into(accumulated, d_scores, plain_keys);
  graph.apply_into(d_q, Pointwise::Identity, accumulated);
}

}  // namespace

void describe_attention(CudnnGraph& graph, const AttentionSample& shape, const Allocate& allocate) {
  if (!has_16_bits(shape.dtype)) {
    throw Unsupported("cuDNN", "fused attention is timed in bf16 and fp16");
  }
  Builder builder(graph, shape, allocate);
  if (shape.backward) {
    builder.backward();
  } else {
    builder.forward();
  }
}

struct CudnnAttention::State {
  std::list<DeviceBuffer> buffers;
  CudnnGraph graph;
};

CudnnAttention::CudnnAttention(const AttentionSample& shape) : state_(std::make_unique<State>()) {
  describe_attention(state_->graph, shape, [this](std::size_t elements, DType dtype) {
    const auto seed = static_cast<unsigned>(state_->buffers.size());
    return state_->buffers.emplace_back(random_buffer(elements, dtype, seed)).data();
  });
  state_->graph.build();
}

CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::enqueue(Stream stream) const { state_->graph.enqueue(stream); }

}  // namespace orrery::calibrate::cuda
