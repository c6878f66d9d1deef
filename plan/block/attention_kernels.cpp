// SPDX-License-Identifier: Apache-2.0
#include "plan/block/attention_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/math.hpp"
#include "costmodel/attention_work.hpp"
#include "plan/block/attention_copies.hpp"
#include "plan/block/ring_attention.hpp"
#include "plan/block/ring_parts.hpp"

namespace orrery::plan {

namespace {

using costmodel::AttentionShape;
using costmodel::GemmLayout;
using costmodel::GemmShape;
using costmodel::MemoryKernel;
using models::Block;
using models::Dim;
using models::Operator;
using models::Tensor;

Flops attention_flops(const AttentionShape& shape) {
  if (shape.window > 0 && shape.window < shape.kv_len) {
    return Flops(costmodel::work_of(costmodel::completed(shape), false, 0, 0).needed_flops);
  }
  // Of a slice the last q_len positions: all keys before it and half of its own.
  const double hidden = shape.causal ? 0.5 * static_cast<double>(shape.q_len) : 0.0;
  const double pairs =
      static_cast<double>(shape.q_len) * (static_cast<double>(shape.kv_len) - hidden);
  return Flops(2.0 * static_cast<double>(shape.batch * shape.heads) * pairs *
               static_cast<double>(shape.head_dim + shape.value_head_dim));
}

// Bytes of a score that softmax moves.
struct SoftmaxTraffic {
  double forward;
  double backward;
  int forward_launches;
  int backward_launches;
};
// What Megatron's modules leave to PyTorch (megatron/model/fused_softmax.py, forward_torch_softmax;
// ATen's masked_fill copies the gradient before it fills). 16 bits: cast 6, scale 8, mask in place
// 9, softmax 8, cast 6; backward cast 6, softmax 12, mask 17, scale 8, cast 6.
constexpr SoftmaxTraffic kMegatronCast = {37, 49, 5, 6};
// fp32: the mask fills a view of the product's result, 9, then softmax 8; backward softmax 12, the
// view's gradient in a cleared tensor 12, three copies 24 around the fill of the slice, 17
// (torch/csrc/autograd/functions/tensor.cpp, CopySlices; FunctionsManual.cpp,
// as_strided_backward).
constexpr SoftmaxTraffic kMegatronFp32 = {17, 65, 2, 8};
constexpr std::int64_t kFusedSoftmaxKeys = 4096;
constexpr std::int64_t kFusedSoftmaxMultiple = 4;

// One kernel of scale, mask and softmax reads and writes the scores; backward it reads gradient and
// output and writes one. PyTorch's are one for the scale, one that adds the mask where there is
// one, and one for the softmax; the mask has no gradient.
SoftmaxTraffic softmax_traffic(const AttentionShape& shape, Softmax kind) {
  const double element = bytes_per_element(shape.dtype);
  const bool own = kind == Softmax::Megatron && !fused_softmax_fits(shape);
  if (own) {
    return element > 2 ? kMegatronFp32 : kMegatronCast;
  }
  if (kind != Softmax::Eager) {
    return {2 * element, 3 * element, 1, 1};
  }
  const int kernels = shape.causal ? 3 : 2;
  return {2 * element * kernels, 5 * element, kernels, 2};
}

// Dropout reads and writes a score and a byte of the mask.
double dropout_bytes(const AttentionShape& shape) { return 2 * bytes_per_element(shape.dtype) + 1; }

// Tensor cores read rows in units of 16 bytes. Heads of another size leave batched GEMMs, whose
// rows are the heads, to the other cores (NVIDIA, Matrix Multiplication Background, tensor core
// requirements).
constexpr std::int64_t kTensorCoreRow = 16;
DType batched_gemm_dtype(const AttentionShape& shape) {
  const auto bytes = static_cast<std::int64_t>(bytes_per_element(shape.dtype));
  const bool aligned = shape.head_dim * bytes % kTensorCoreRow == 0 &&
                       shape.value_head_dim * bytes % kTensorCoreRow == 0;
  return aligned ? shape.dtype : DType::Fp32;
}

// Of m, n and k for every sequence and head.
GemmShape batched(const AttentionShape& attention, std::int64_t m, std::int64_t n, std::int64_t k,
                  GemmLayout layout) {
  GemmShape shape{m, n, k, attention.batch * attention.heads, batched_gemm_dtype(attention)};
  shape.output_bytes = static_cast<int>(bytes_per_element(attention.dtype));
  shape.layout = layout;
  shape.batched = true;
  return shape;
}

// Scores, softmax (and dropout) and context as separate kernels over materialised scores of
// batch x heads x q x kv (Korthikanti et al. 2022).
OperatorCost unfused_attention(const AttentionShape& shape, bool dropout,
                               const KernelContext& context) {
  const GemmShape scores =
      batched(shape, shape.q_len, shape.kv_len, shape.head_dim, GemmLayout::TN);
  const GemmShape values =
      batched(shape, shape.q_len, shape.value_head_dim, shape.kv_len, GemmLayout::NN);
  const double elements = static_cast<double>(scores.groups) * static_cast<double>(shape.q_len) *
                          static_cast<double>(shape.kv_len);
  const SoftmaxTraffic softmax = softmax_traffic(shape, context.execution.softmax);
  const auto memory = [&](double bytes) {
    return bytes > 0 ? context.device.memory_bound(Bytes(bytes * elements), MemoryKernel::Softmax)
                     : Seconds();
  };
  const Seconds masked = memory(dropout ? dropout_bytes(shape) : 0.0);
  const int dropped = dropout ? 1 : 0;
  const Seconds gemms = context.device.gemm(scores) + context.device.gemm(values);
  OperatorCost cost;
  cost.forward = {gemms + memory(softmax.forward) + masked,
                  costmodel::flops_of(scores) + costmodel::flops_of(values),
                  softmax.forward_launches + dropped + 2, CostClass::Attention};
  // Backward: two GEMMs per forward GEMM.
  const GemmShape grad_k =
      batched(shape, shape.kv_len, shape.head_dim, shape.q_len, GemmLayout::NT);
  const GemmShape grad_v =
      batched(shape, shape.kv_len, shape.value_head_dim, shape.q_len, GemmLayout::NT);
  const Seconds backward_gemms = context.device.gemm(values) + context.device.gemm(scores) +
                                 context.device.gemm(grad_k) + context.device.gemm(grad_v);
  cost.input_grad = {backward_gemms + memory(softmax.backward) + masked, cost.forward.flops * 2.0,
                     softmax.backward_launches + dropped + 4, CostClass::Attention};
  return cost;
}

// The positions that attention sees beside those of earlier slices, whichever rank has them.
std::int64_t new_positions(const AttentionShape& shape, const KernelContext& context) {
  return shape.kv_len - context.slice.start;
}

// Keys and values of a slice are copied into those of its micro-batch. Its backward makes gradients
// for all keys that it saw; those of slices before the last are added to what later slices left
// (reads two tensors, writes one). Each context rank of a ring or a gather does so with its own.
void add_context(const AttentionShape& shape, const KernelContext& context, OperatorCost& cost) {
  constexpr double kSum = 3;
  const double share =
      static_cast<double>(shape.q_len) / static_cast<double>(new_positions(shape, context));
  const double token =
      static_cast<double>(shape.batch * shape.kv_heads * (shape.head_dim + shape.value_head_dim)) *
      bytes_per_element(shape.dtype);
  cost.forward.time += context.device.memory_bound(
      Bytes(2 * token * static_cast<double>(context.slice.tokens) * share), MemoryKernel::Copy);
  cost.forward.launches += 2;
  if (!context.slice.last) {
    cost.input_grad.time += context.device.memory_bound(
        Bytes(kSum * token * static_cast<double>(shape.kv_len) * share), MemoryKernel::Elementwise);
    cost.input_grad.launches += 2;
  }
}

// One kernel over packed sequences, each of which sees itself alone (FlashAttention's variable
// lengths): equal ones are a batch, and the batches take the time of each.
OperatorCost packed_attention(const AttentionShape& shape, const KernelContext& context) {
  std::map<std::int64_t, std::int64_t> count_of;  // sequences by tokens
  for (const std::int64_t tokens : context.packed) {
    ++count_of[tokens];
  }
  OperatorCost cost;
  for (const auto& [tokens, count] : count_of) {
    AttentionShape alike = shape;
    alike.batch = shape.batch * count;
    alike.q_len = tokens;
    alike.kv_len = tokens;
    OperatorCost kernel = fused_attention_cost(alike, context);
    kernel.forward.time += cost.forward.time;
    kernel.forward.flops += cost.forward.flops;
    kernel.input_grad.time += cost.input_grad.time;
    kernel.input_grad.flops += cost.input_grad.flops;
    cost = kernel;
  }
  return cost;
}

OperatorCost core_cost(const Block& block, const AttentionShape& shape,
                       const KernelContext& context) {
  if (!context.execution.fused_attention) {
    return unfused_attention(shape, block.attention.dropout, context);
  }
  if (!context.packed.empty() && shape.q_len == shape.kv_len) {
    return packed_attention(shape, context);
  }
  const std::int64_t positions = new_positions(shape, context);
  const bool part = shape.causal && shape.q_len < positions;
  if (part && context.ring && positions % shape.q_len == 0) {
    return ring_attention(shape, positions / shape.q_len, context);
  }
  AttentionShape whole = shape;
  if (part) {
    // Context ranks hold balanced (zig-zag) parts of the causal triangle: half of the rectangle.
    // Of unbalanced parts the last sees everything before it and half of itself.
    whole.kv_len = std::max<std::int64_t>(
        1, context.slice.start + (context.zigzag ? positions / 2 : positions - shape.q_len / 2));
    whole.causal = false;
    if (shape.window > 0 && shape.window < shape.kv_len) {
      const double pairs = most_pairs({shape.q_len, ceil_div(positions, shape.q_len),
                                       context.slice.start, shape.window, context.zigzag});
      whole.kv_len = std::max<std::int64_t>(1, std::llround(pairs / as_double(shape.q_len)));
    }
  }
  return fused_attention_cost(whole, context);
}

}  // namespace

OperatorCost fused_attention_cost(AttentionShape shape, const KernelContext& context) {
  const Flops flops = attention_flops(shape);
  const bool in_fp8 = context.execution.fp8_attention && is_quantised(context.precision);
  shape.dtype = in_fp8 ? DType::Fp8 : shape.dtype;
  OperatorCost cost;
  cost.forward = {context.device.attention_forward(shape), flops, 1, CostClass::Attention};
  if (!context.forward_only) {
    cost.input_grad = {context.device.attention_backward(shape), flops * 2.0, 2,
                       CostClass::Attention};
  }
  return cost;
}

bool fused_softmax_fits(const AttentionShape& shape) {
  return bytes_per_element(shape.dtype) <= 2 && shape.kv_len <= kFusedSoftmaxKeys &&
         shape.q_len % kFusedSoftmaxMultiple == 0 &&
         shape.batch * shape.heads % kFusedSoftmaxMultiple == 0;
}

bool casts_scores(const AttentionShape& shape, Softmax kind) {
  return kind == Softmax::Megatron && bytes_per_element(shape.dtype) <= 2 &&
         !fused_softmax_fits(shape);
}

AttentionShape attention_shape(const Block& block, const Operator& op, const Assignment& assignment,
                               const KernelContext& context) {
  const models::AttentionInfo& info = block.attention;
  AttentionShape shape;
  shape.head_dim = info.head_dim;
  shape.value_head_dim = info.value_head_dim > 0 ? info.value_head_dim : info.head_dim;
  shape.causal = info.causal && !op.cross_attention;
  shape.window = op.cross_attention ? 0 : info.window;
  shape.dtype = unquantised(context.precision);
  const auto read = [&](int position, std::int64_t& heads) {
    const Tensor& tensor = tensor_at(block, op.inputs[static_cast<std::size_t>(position)]);
    const Layout layout = required_input(op, tensor, position, assignment);
    std::int64_t tokens = 1;
    for (const Dim& dim : tensor.dims) {
      const std::int64_t extent = local_extent(dim, layout, context.mesh, context.extents);
      if (dim.var == Var::Batch) {
        shape.batch = extent;
      } else if (dim.var == Var::Seq || dim.var == Var::KeySeq) {
        tokens = extent;
      } else if (dim.var == Var::Head || dim.var == Var::KvHead) {
        heads = extent;
      }
    }
    return tokens;
  };
  shape.q_len = read(0, shape.heads);
  shape.kv_len = op.inputs.size() > 1 ? read(1, shape.kv_heads) : shape.q_len;
  shape.kv_heads = std::clamp<std::int64_t>(shape.kv_heads, 1, shape.heads);
  shape.kv_len += context.slice.start;
  return shape;
}

OperatorCost attention_cost(const Block& block, const Operator& op, const Assignment& assignment,
                            const KernelContext& context) {
  AttentionShape shape = attention_shape(block, op, assignment, context);
  shape.flash_version = context.execution.flash_version;
  const std::int64_t kv_heads = shape.kv_heads;
  const bool repeats = context.execution.repeated_heads && kv_heads < shape.heads;
  if (repeats) {
    shape.kv_heads = shape.heads;
  }
  OperatorCost cost = core_cost(block, shape, context);
  if (repeats) {
    add_repetition(shape, kv_heads, context, cost);
  }
  add_layout_copies(block, shape, kv_heads, context, cost);
  if (!context.slice.is_whole()) {
    add_context(shape, context, cost);
  }
  const bool exchanges = std::any_of(kContextAxes.begin(), kContextAxes.end(), [&](Axis axis) {
    return context.mesh.of(axis) > 1 && assignment[static_cast<std::size_t>(axis)] == Var::Head;
  });
  if (exchanges && !op.cross_attention) {
    add_exchange_copies(shape, context, cost);
  }
  return cost;
}

}  // namespace orrery::plan
