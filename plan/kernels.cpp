// SPDX-License-Identifier: Apache-2.0
#include "plan/kernels.hpp"

#include <algorithm>
#include <vector>

#include "base/math.hpp"
#include "plan/attention_kernels.hpp"
#include "plan/eager_kernels.hpp"

namespace orrery::plan {

namespace {

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
  std::vector<std::int64_t> columns;  // of each weight; n is their sum
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
      gemm.columns.push_back(columns);
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

void add_memory(KernelCost& cost, double bytes, MemoryKernel kernel, const KernelContext& context) {
  cost.time += context.device.memory_bound(Bytes(bytes), kernel);
  cost.launches += 1;
}

bool has_bias(const Block& block, const Operator& op) {
  return std::any_of(op.weights.begin(), op.weights.end(), [&](int index) {
    const Tensor& weight = tensor_at(block, index);
    return std::none_of(weight.dims.begin(), weight.dims.end(),
                        [&](const Dim& dim) { return is_reduced(op, dim.var); });
  });
}

// Fused activation, dropout and residual kernels add the bias of the GEMM before them.
bool next_kernel_adds_bias(const Block& block, const Operator& op) {
  return std::any_of(block.operators.begin(), block.operators.end(), [&](const Operator& next) {
    return next.kind == OpKind::Elementwise && std::find(next.inputs.begin(), next.inputs.end(),
                                                         op.outputs.front()) != next.inputs.end();
  });
}

// A bias outside the GEMM's epilogue: the output is read and written once more, unless the next
// kernel does it, and its gradient is a sum over the rows of the output's gradient. Where biases
// lie in epilogues, those that the next kernel adds may still need that sum.
void add_bias(const Block& block, const Operator& op, const GemmExtents& gemm,
              const KernelContext& context, OperatorCost& cost) {
  const double bytes = static_cast<double>(gemm.m) * static_cast<double>(gemm.n) *
                       static_cast<double>(gemm.groups) *
                       element_bytes(models::Element::Compute, context.precision);
  const bool next_adds = next_kernel_adds_bias(block, op);
  if (!context.execution.fused_bias && (!context.execution.fused_kernels || !next_adds)) {
    add_memory(cost.forward, 2.0 * bytes, MemoryKernel::Elementwise, context);
  }
  if (!context.execution.fused_bias || (context.execution.bias_gradient_sums && next_adds)) {
    add_memory(cost.weight_grad, bytes, MemoryKernel::Elementwise, context);
  }
}

// A gradient that its kernel does not add itself is written, read and added to the buffer.
double accumulation_bytes(double elements, const KernelContext& context) {
  const int parameter = element_bytes(models::Element::Param, context.precision);
  const int gradient = context.execution.fp32_gradients ? 4 : parameter;
  return elements * (parameter + 2 * gradient);
}

OperatorCost gemm_cost(const Block& block, const Operator& op, const KernelContext& context,
                       const GemmExtents& gemm) {
  const DType dtype = gemm_dtype(op, context.precision);
  const bool accumulates = context.execution.fused_grad_accumulation;
  const int gradient_bytes = accumulates && context.execution.fp32_gradients ? 4 : 2;
  OperatorCost cost;
  cost.forward = gemm_kernel({gemm.m, gemm.n, gemm.k, gemm.groups, dtype, 2}, context);
  GemmShape input_grad{gemm.m, gemm.k, gemm.n, gemm.groups, dtype, 2};
  input_grad.layout = costmodel::GemmLayout::NN;
  cost.input_grad = gemm_kernel(input_grad, context);
  GemmShape weight_grad{gemm.n, gemm.k, gemm.m, gemm.groups, dtype, gradient_bytes};
  weight_grad.layout = costmodel::GemmLayout::NT;
  cost.weight_grad = gemm_kernel(weight_grad, context);
  if (!accumulates) {
    const double elements = static_cast<double>(gemm.k) * static_cast<double>(gemm.n) *
                            static_cast<double>(gemm.groups);
    add_memory(cost.weight_grad, accumulation_bytes(elements, context), MemoryKernel::Elementwise,
               context);
  }
  if (has_bias(block, op)) {
    add_bias(block, op, gemm, context, cost);
  }
  return cost;
}

// Each weight of the operator by itself. Their input gradients are added up in one pass that reads
// all of them (torch.compile) or in one addition after the other.
OperatorCost separate_gemms(const Block& block, const Operator& op, const KernelContext& context,
                            const GemmExtents& whole) {
  OperatorCost sum;
  const auto add = [](KernelCost& to, const KernelCost& cost) {
    to.time += cost.time;
    to.flops += cost.flops;
    to.launches += cost.launches;
    to.cost_class = cost.cost_class;
  };
  for (const std::int64_t columns : whole.columns) {
    GemmExtents one = whole;
    one.n = columns;
    const OperatorCost cost = gemm_cost(block, op, context, one);
    add(sum.forward, cost.forward);
    add(sum.input_grad, cost.input_grad);
    add(sum.weight_grad, cost.weight_grad);
  }
  const double parts = static_cast<double>(whole.columns.size());
  if (gemm_dtype(op, context.precision) == DType::Fp8) {
    // One cast of the common input is enough (torch.compile removes equal expressions).
    const double elements = static_cast<double>(whole.m) * static_cast<double>(whole.k) *
                            static_cast<double>(whole.groups);
    sum.forward.time -= context.device.quantise(Bytes(2.0 * elements)) * (parts - 1);
    sum.forward.launches -= static_cast<int>(whole.columns.size()) - 1;
  }
  const double passes = context.execution.fused_kernels ? parts + 1 : 3 * (parts - 1);
  add_memory(sum.input_grad,
             passes * static_cast<double>(whole.m) * static_cast<double>(whole.k) *
                 static_cast<double>(whole.groups) *
                 element_bytes(models::Element::Compute, context.precision),
             MemoryKernel::Elementwise, context);
  return sum;
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

bool is_routed(const Tensor& tensor) {
  return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                     [](const Dim& dim) { return dim.var == Var::Choice; });
}

// Forward traffic: every operand once, times the operator's factor. An embedding reads the rows it
// gathers, not its table.
Bytes forward_bytes(const Block& block, const Operator& op, const Assignment& assignment,
                    const KernelContext& context) {
  double bytes = 0;
  const auto add = [&](int index, const Layout& layout) {
    const Tensor& tensor = tensor_at(block, index);
    bytes += static_cast<double>(local_elements(tensor, layout, context.mesh, context.extents)) *
             element_bytes(tensor.element, context.precision);
  };
  for (std::size_t position = 0; position < op.inputs.size(); ++position) {
    const int index = op.inputs[position];
    add(index, required_input(op, tensor_at(block, index), static_cast<int>(position), assignment));
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

// Tokens that arrive from other ranks for several local experts are sorted from source order to
// expert order, and back before they return: one more read and write of the routed tokens in each
// pass (megatron/core/transformer/moe/token_dispatcher.py, sort_chunks_by_idxs).
void sort_chunks(const Block& block, const Operator& op, const Assignment& assignment,
                 const KernelContext& context, OperatorCost& cost) {
  const int ranks = context.mesh.of(Axis::Expert);
  if (ranks == 1 || block.experts <= ranks) {
    return;
  }
  const bool dispatches = is_routed(tensor_at(block, op.outputs.front()));
  const int index = dispatches ? op.outputs.front() : op.inputs.front();
  const Tensor& routed = tensor_at(block, index);
  if (!is_routed(routed)) {
    return;
  }
  const Layout layout = dispatches ? produced_output(op, routed, assignment)
                                   : required_input(op, routed, 0, assignment);
  const double bytes =
      2.0 * static_cast<double>(local_elements(routed, layout, context.mesh, context.extents)) *
      element_bytes(routed.element, context.precision);
  add_memory(cost.forward, bytes, MemoryKernel::Permute, context);
  add_memory(cost.input_grad, bytes, MemoryKernel::Permute, context);
}

OperatorCost memory_cost(const Block& block, const Operator& op, const Assignment& assignment,
                         const KernelContext& context) {
  const Bytes bytes = forward_bytes(block, op, assignment, context);
  const MemoryKernel kernel = kernel_of(op.kind);
  const EagerPasses eager = eager_passes(block, op, context.execution);
  const auto kernels = [&](Bytes traffic, int launches) {
    // Each kernel has its share of the traffic and a launch of its own.
    return KernelCost{context.device.memory_bound(traffic / static_cast<double>(launches), kernel) *
                          static_cast<double>(launches),
                      Flops(), launches, CostClass::MemoryBound};
  };
  OperatorCost cost;
  cost.forward = kernels(bytes * eager.forward, eager.forward_kernels);
  cost.input_grad =
      kernels(bytes * (op.backward_bytes_factor * eager.backward), eager.backward_kernels);
  if (op.kind == OpKind::Permute) {
    sort_chunks(block, op, assignment, context, cost);
  }
  if (op.kind == OpKind::Embedding) {
    // The gradient of the table is dense: filled with zeros, then added to the gradient buffer.
    const Tensor& table = tensor_at(block, op.weights.front());
    const double elements = static_cast<double>(
        local_elements(table, weight_layout(op, table, assignment), context.mesh, context.extents));
    add_memory(cost.input_grad,
               elements * element_bytes(models::Element::Param, context.precision) +
                   accumulation_bytes(elements, context),
               MemoryKernel::Elementwise, context);
  }
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
    case OpKind::GroupedGemm: {
      const GemmExtents gemm = gemm_extents(block, op, assignment, context);
      return !context.execution.fused_projections && gemm.columns.size() > 1
                 ? separate_gemms(block, op, context, gemm)
                 : gemm_cost(block, op, context, gemm);
    }
    case OpKind::Attention:
      return attention_cost(block, op, assignment, context);
    case OpKind::CrossEntropy:
      return context.execution.fused_cross_entropy ? memory_cost(block, op, assignment, context)
                                                   : unfused_loss(block, op, assignment, context);
    default:
      return memory_cost(block, op, assignment, context);
  }
}

}  // namespace orrery::plan
