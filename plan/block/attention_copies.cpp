// SPDX-License-Identifier: Apache-2.0
#include "plan/block/attention_copies.hpp"

#include <algorithm>

namespace orrery::plan {

namespace {

using costmodel::AttentionShape;
using costmodel::MemoryKernel;
using models::Block;
using models::Operator;

// Bytes that a copy of so wide a tensor moves.
Bytes copied(const AttentionShape& shape, std::int64_t width) {
  return Bytes(2.0 * bytes_per_element(shape.dtype) * static_cast<double>(shape.batch) *
               static_cast<double>(shape.q_len) * static_cast<double>(width));
}

void add_copy(const AttentionShape& shape, std::int64_t width, const KernelContext& context,
              KernelCost& pass, int launches = 1) {
  pass.time += context.device.memory_bound(copied(shape, width), MemoryKernel::Copy);
  pass.launches += launches;
}

bool has_rotary(const Block& block) {
  return std::any_of(block.operators.begin(), block.operators.end(),
                     [](const Operator& op) { return op.role == models::OpRole::Rotary; });
}

bool is_latent(const AttentionShape& shape) {  // as models::AttentionInfo says
  return shape.head_dim != shape.value_head_dim;
}

// Kernels that read [s, b, h] take q and k as rotary positions leave them; values, which lie beside
// keys, and queries of groups are copied out of the projection's output, and its gradient is joined
// from theirs (Megatron-LM, core/transformer/attention.py: get_query_key_value_tensors, and
// multi_latent_attention.py, where keys and values share a projection; TransformerEngine,
// dot_product_attention/utils.py: get_qkv_layout, utils.py: SplitAlongDim). Without rotary
// positions the kernels read and write the projection's own layout.
void add_projection_copies(const Block& block, const AttentionShape& shape,
                           const KernelContext& context, OperatorCost& cost) {
  if (!has_rotary(block)) {
    return;
  }
  const std::int64_t values = shape.kv_heads * shape.value_head_dim;
  const std::int64_t queries = shape.heads * shape.head_dim;
  add_copy(shape, values, context, cost.forward);
  if (!is_latent(shape) && shape.kv_heads < shape.heads) {
    add_copy(shape, queries, context, cost.forward);
  }
  add_copy(shape, 2 * values + (is_latent(shape) ? 0 : queries), context, cost.input_grad);
}

// Copies that are not part of the core (megatron/model/transformer.py): the gradients of q, k and v
// into one tensor (the split's backward); the context back to the order of the projection
// (permute().contiguous()), whose gradient products of batches read as it lies (ATen
// native/cuda/Blas.cpp, prepare_batch_matrix_for_cublas); and, for fused kernels, q, k and v out of
// that order, and that gradient. Of one sequence [s, b, h] and [b, s, h] are the same bytes, and
// contiguous() copies nothing that lies alone: q and k behind rotary positions, and the context.
void add_copies(const Block& block, const AttentionShape& shape, const KernelContext& context,
                OperatorCost& cost) {
  const bool fused = context.execution.fused_attention;
  const bool one_order = fused && shape.batch == 1;
  if (one_order && has_rotary(block)) {
    add_projection_copies(block, shape, context, cost);
    return;
  }
  const std::int64_t out = shape.heads * shape.value_head_dim;
  const std::int64_t in =
      shape.heads * shape.head_dim + shape.kv_heads * (shape.head_dim + shape.value_head_dim);
  if (!one_order) {
    add_copy(shape, out, context, cost.forward);
  }
  if (fused) {
    add_copy(shape, in, context, cost.forward, 3);
    if (!one_order) {
      add_copy(shape, out, context, cost.input_grad);
    }
  }
  add_copy(shape, in, context, cost.input_grad);
}

// What autograd's split of the projection leaves, the gradients of q, k and v, as one tensor; of
// latent attention those of keys and values.
void join_projection(const AttentionShape& shape, std::int64_t kv_heads,
                     const KernelContext& context, OperatorCost& cost) {
  const std::int64_t queries = is_latent(shape) ? 0 : shape.heads * shape.head_dim;
  add_copy(shape, queries + kv_heads * (shape.head_dim + shape.value_head_dim), context,
           cost.input_grad);
}

}  // namespace

void add_layout_copies(const Block& block, const AttentionShape& shape, std::int64_t kv_heads,
                       const KernelContext& context, OperatorCost& cost) {
  const Execution& execution = context.execution;
  if (execution.attention_copies) {
    add_copies(block, shape, context, cost);
  } else if (execution.projection_copies && execution.fused_attention) {
    add_projection_copies(block, shape, context, cost);
  } else if (execution.joins_gradients && execution.fused_projections) {
    join_projection(shape, kv_heads, context, cost);
  }
}

void add_exchange_copies(const AttentionShape& shape, const KernelContext& context,
                         OperatorCost& cost) {
  constexpr double kCopies = 2;
  constexpr int kTensors = 4;
  const double heads = static_cast<double>(shape.heads);
  const double kv_heads = static_cast<double>(shape.kv_heads);
  const double width = static_cast<double>(shape.head_dim + shape.value_head_dim);
  const Bytes moved(kCopies * 2.0 * bytes_per_element(shape.dtype) *
                    static_cast<double>(shape.batch * shape.q_len) * (heads + kv_heads) * width);
  const Seconds time = context.device.memory_bound(moved, MemoryKernel::Copy);
  for (KernelCost* pass : {&cost.forward, &cost.input_grad}) {
    pass->time += time;
    pass->launches += static_cast<int>(kCopies) * kTensors;
  }
}

void add_repetition(const AttentionShape& shape, std::int64_t kv_heads,
                    const KernelContext& context, OperatorCost& cost) {
  constexpr int kTensors = 2;
  const Bytes moved(static_cast<double>(shape.batch * shape.q_len * (kv_heads + shape.heads) *
                                        (shape.head_dim + shape.value_head_dim)) *
                    bytes_per_element(shape.dtype));
  cost.forward.time += context.device.memory_bound(moved, MemoryKernel::Copy);
  cost.forward.launches += kTensors;
  cost.input_grad.time += context.device.memory_bound(moved, MemoryKernel::Elementwise);
  cost.input_grad.launches += kTensors;
}

}  // namespace orrery::plan
