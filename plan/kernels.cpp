// SPDX-License-Identifier: Apache-2.0
#include "plan/kernels.hpp"

#include <algorithm>

#include "base/math.hpp"

namespace orrery::plan {

namespace {

using costmodel::AttentionShape;
using costmodel::GemmShape;
using costmodel::MemoryKernel;
using models::Block;
using models::Dim;
using models::Operator;
using models::OpKind;
using models::Tensor;

const Tensor& tensor_at(const Block& block, int index) {
  return block.tensors[static_cast<std::size_t>(index)];
}

Layout weight_layout(const Operator& op, const Tensor& weight, const Assignment& assignment) {
  return required_input(op, weight, 0, assignment);
}

bool is_reduced(const Operator& op, Var var) {
  return std::find(op.reduced.begin(), op.reduced.end(), var) != op.reduced.end();
}

struct GemmExtents {
  std::int64_t m = 1;
  std::int64_t n = 0;
  std::int64_t k = 1;
  std::int64_t groups = 1;
};

GemmExtents gemm_extents(const Block& block, const Operator& op, const Assignment& assignment,
                         const KernelContext& context) {
  GemmExtents gemm;
  const Tensor& input = tensor_at(block, op.inputs.front());
  const Layout input_layout = required_input(op, input, 0, assignment);
  for (const Dim& dim : input.dims) {
    const std::int64_t extent = local_extent(dim, input_layout, context.mesh, context.extents);
    (is_reduced(op, dim.var) ? gemm.k : gemm.m) *= extent;
  }
  for (const int index : op.weights) {
    const Tensor& weight = tensor_at(block, index);
    const Layout layout = weight_layout(op, weight, assignment);
    std::int64_t columns = 1;
    std::int64_t experts = 1;
    bool contracts = false;
    for (const Dim& dim : weight.dims) {
      const std::int64_t extent = local_extent(dim, layout, context.mesh, context.extents);
      if (is_reduced(op, dim.var)) {
        contracts = true;
      } else if (dim.var == Var::Expert) {
        experts = extent;
      } else {
        columns *= extent;
      }
    }
    if (contracts) {  // biases do not
      gemm.n += columns;
      gemm.groups = experts;
    }
  }
  const std::int64_t rows = ceil_div(gemm.m, copy_shards(input_layout, context.mesh));
  gemm.m = std::max<std::int64_t>(1, rows / gemm.groups);
  return gemm;
}

Flops gemm_flops(const GemmShape& shape) {
  return Flops(2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
               static_cast<double>(shape.k) * static_cast<double>(shape.groups));
}

KernelCost gemm_kernel(const GemmShape& shape, const KernelContext& context) {
  KernelCost cost{context.device.gemm(shape), gemm_flops(shape), 1, CostClass::Gemm};
  if (shape.dtype == DType::Fp8) {
    // Both operands are cast from 16 bits before the GEMM; weights once per step, so activations
    // (the m x k operand) only.
    const double elements = static_cast<double>(shape.m) * static_cast<double>(shape.k) *
                            static_cast<double>(shape.groups);
    cost.time += context.device.quantise(Bytes(2.0 * elements));
    cost.launches += 1;
  }
  return cost;
}

// Linear layers run in fp8 where the plan says so; the head's logits stay in 16 bits.
DType gemm_dtype(const Operator& op, DType precision) {
  return precision == DType::Fp8 && op.logits_in_fp32 ? DType::Bf16 : precision;
}

OperatorCost gemm_cost(const Block& block, const Operator& op, const Assignment& assignment,
                       const KernelContext& context) {
  const GemmExtents gemm = gemm_extents(block, op, assignment, context);
  const DType dtype = gemm_dtype(op, context.precision);
  const int gradient_bytes = context.execution.fp32_gradients ? 4 : 2;
  OperatorCost cost;
  cost.forward = gemm_kernel({gemm.m, gemm.n, gemm.k, gemm.groups, dtype, 2}, context);
  cost.input_grad = gemm_kernel({gemm.m, gemm.k, gemm.n, gemm.groups, dtype, 2}, context);
  cost.weight_grad =
      gemm_kernel({gemm.k, gemm.n, gemm.m, gemm.groups, dtype, gradient_bytes}, context);
  return cost;
}

AttentionShape attention_shape(const Block& block, const Operator& op,
                               const Assignment& assignment, const KernelContext& context) {
  const models::AttentionInfo& info = block.attention;
  AttentionShape shape;
  shape.head_dim = info.head_dim;
  shape.value_head_dim = info.value_head_dim > 0 ? info.value_head_dim : info.head_dim;
  shape.causal = info.causal && !op.cross_attention;
  shape.window = op.cross_attention ? 0 : info.window;
  shape.dtype = context.precision == DType::Fp8 ? DType::Bf16 : context.precision;
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
  if (shape.causal && shape.q_len < shape.kv_len) {
    // Context ranks hold balanced (zig-zag) parts of the causal triangle: half of the rectangle,
    // which unfused kernels compute whole.
    if (context.execution.fused_attention) {
      shape.kv_len = std::max<std::int64_t>(1, shape.kv_len / 2);
    }
    shape.causal = false;
  }
  return shape;
}

Flops attention_flops(const AttentionShape& shape) {
  const double pairs = static_cast<double>(shape.q_len) * static_cast<double>(shape.kv_len) *
                       (shape.causal ? 0.5 : 1.0);
  return Flops(2.0 * static_cast<double>(shape.batch * shape.heads) * pairs *
               static_cast<double>(shape.head_dim + shape.value_head_dim));
}

// Scores, softmax (and dropout) and context as separate kernels over materialised scores of
// batch x heads x q x kv (Korthikanti et al. 2022).
OperatorCost unfused_attention(const AttentionShape& shape, bool dropout,
                               const KernelContext& context) {
  const std::int64_t groups = shape.batch * shape.heads;
  const GemmShape scores{shape.q_len, shape.kv_len, shape.head_dim, groups, shape.dtype, 2};
  const GemmShape values{shape.q_len, shape.value_head_dim, shape.kv_len, groups, shape.dtype, 2};
  const double elements = static_cast<double>(groups) * static_cast<double>(shape.q_len) *
                          static_cast<double>(shape.kv_len);
  // Softmax reads and writes 2 bytes an element; dropout reads 2 and writes 2 and a mask byte.
  const Bytes softmax(4.0 * elements);
  const Bytes masked(dropout ? 5.0 * elements : 0.0);
  const auto memory = [&](Bytes bytes) {
    return bytes.value() > 0 ? context.device.memory_bound(bytes, MemoryKernel::Softmax)
                             : Seconds();
  };
  const Seconds gemms = context.device.gemm(scores) + context.device.gemm(values);
  OperatorCost cost;
  cost.forward = {gemms + memory(softmax) + memory(masked),
                  gemm_flops(scores) + gemm_flops(values), dropout ? 4 : 3, CostClass::Attention};
  // Backward: two GEMMs per forward GEMM; softmax reads the gradient and the output, writes one.
  const GemmShape grad_k{shape.kv_len, shape.head_dim, shape.q_len, groups, shape.dtype, 2};
  const GemmShape grad_v{shape.kv_len, shape.value_head_dim, shape.q_len, groups, shape.dtype, 2};
  const Seconds backward_gemms = context.device.gemm(values) + context.device.gemm(scores) +
                                 context.device.gemm(grad_k) + context.device.gemm(grad_v);
  cost.input_grad = {backward_gemms + memory(softmax * 1.5) + memory(masked),
                     cost.forward.flops * 2.0, dropout ? 6 : 5, CostClass::Attention};
  return cost;
}

OperatorCost attention_cost(const Block& block, const Operator& op, const Assignment& assignment,
                            const KernelContext& context) {
  AttentionShape shape = attention_shape(block, op, assignment, context);
  shape.flash_version = context.execution.flash_version;
  if (!context.execution.fused_attention) {
    return unfused_attention(shape, block.attention.dropout, context);
  }
  OperatorCost cost;
  const Flops flops = attention_flops(shape);
  cost.forward = {context.device.attention_forward(shape), flops, 1, CostClass::Attention};
  cost.input_grad = {context.device.attention_backward(shape), flops * 2.0, 2,
                     CostClass::Attention};
  return cost;
}

MemoryKernel kernel_of(OpKind kind) {
  switch (kind) {
    case OpKind::Norm:
      return MemoryKernel::Norm;
    case OpKind::Embedding:
      return MemoryKernel::Embedding;
    case OpKind::CrossEntropy:
      return MemoryKernel::CrossEntropy;
    case OpKind::Router:
      return MemoryKernel::Softmax;
    case OpKind::Permute:
      return MemoryKernel::Permute;
    default:
      return MemoryKernel::Elementwise;
  }
}

// Forward traffic: every operand once, times the operator's factor. An embedding reads the rows it
// gathers, not its table.
Bytes forward_bytes(const Block& block, const Operator& op, const Assignment& assignment,
                    const KernelContext& context) {
  double bytes = 0;
  const auto add = [&](int index, const Layout& layout) {
    const Tensor& tensor = tensor_at(block, index);
    bytes += static_cast<double>(
                 local_elements(tensor, layout, context.mesh, context.extents)) *
             element_bytes(tensor.element, context.precision);
  };
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const int index = op.inputs[position];
    add(index, required_input(op, tensor_at(block, index), static_cast<int>(position),
                              assignment));
  }
  for (const int index : op.outputs) {
    const Layout layout = produced_output(op, tensor_at(block, index), assignment);
    add(index, layout);
    if (op.kind == OpKind::Embedding) {
      add(index, layout);
    }
  }
  if (op.kind != OpKind::Embedding) {
    for (const int index : op.weights) {
      add(index, weight_layout(op, tensor_at(block, index), assignment));
    }
  }
  return Bytes(bytes * op.bytes_factor);
}

// Passes over the logits of a loss that is not one kernel, in bytes a logit. Megatron's
// vocab_parallel_cross_entropy: cast 6, max 4, subtract 8, exp 8, sum 4 and divide 8 forward;
// scale 8 and cast 6 backward. Eager PyTorch: cast 6 and log_softmax 12; nll_loss 4, log_softmax
// 12 and cast 6.
struct LossTraffic {
  double forward;
  double backward;
};
constexpr LossTraffic kMegatronLoss = {38, 14};
constexpr LossTraffic kEagerLoss = {18, 22};
constexpr int kLossKernels = 6;

OperatorCost unfused_loss(const Block& block, const Operator& op, const Assignment& assignment,
                          const KernelContext& context) {
  const Tensor& logits = tensor_at(block, op.inputs.front());
  const double count = static_cast<double>(local_elements(
      logits, required_input(op, logits, 0, assignment), context.mesh, context.extents));
  const LossTraffic& traffic = context.execution.eager_loss ? kEagerLoss : kMegatronLoss;
  const auto kernels = [&](double bytes) {
    return KernelCost{context.device.memory_bound(Bytes(bytes * count), MemoryKernel::Elementwise),
                      Flops(), kLossKernels, CostClass::MemoryBound};
  };
  OperatorCost cost;
  cost.forward = kernels(traffic.forward);
  cost.input_grad = kernels(traffic.backward);
  return cost;
}

OperatorCost memory_cost(const Block& block, const Operator& op, const Assignment& assignment,
                         const KernelContext& context) {
  const Bytes bytes = forward_bytes(block, op, assignment, context);
  const MemoryKernel kernel = kernel_of(op.kind);
  // Unfused frameworks run bias, dropout and residual as kernels of their own: one more pass.
  const bool split = op.pointwise && !context.execution.fused_kernels;
  const int launches = split ? 2 : 1;
  const auto time = [&](Bytes traffic) {
    return context.device.memory_bound(traffic, kernel) * static_cast<double>(launches);
  };
  OperatorCost cost;
  cost.forward = {time(bytes), Flops(), launches, CostClass::MemoryBound};
  cost.input_grad = {time(bytes * op.backward_bytes_factor), Flops(), launches,
                     CostClass::MemoryBound};
  return cost;
}

}  // namespace

int element_bytes(models::Element element, DType precision) {
  switch (element) {
    case models::Element::Compute:
    case models::Element::Param:
      return precision == DType::Fp8 ? 2 : bytes_per_element(precision);
    case models::Element::Fp32:
      return 4;
    case models::Element::Int64:
      return 8;
    case models::Element::Mask:
      return 1;
  }
  return 0;
}

OperatorCost operator_cost(const Block& block, const Operator& op, const Assignment& assignment,
                           const KernelContext& context) {
  switch (op.kind) {
    case OpKind::Gemm:
    case OpKind::GroupedGemm:
      return gemm_cost(block, op, assignment, context);
    case OpKind::Attention:
      return attention_cost(block, op, assignment, context);
    case OpKind::CrossEntropy:
      return context.execution.fused_cross_entropy
                 ? memory_cost(block, op, assignment, context)
                 : unfused_loss(block, op, assignment, context);
    default:
      return memory_cost(block, op, assignment, context);
  }
}

}  // namespace orrery::plan
