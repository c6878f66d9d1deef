// SPDX-License-Identifier: Apache-2.0
#include "plan/block/gemm_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/math.hpp"
#include "plan/block/crossing_share.hpp"
#include "plan/block/inference_kernels.hpp"
#include "plan/block/quantised_casts.hpp"
#include "plan/dispatchers.hpp"

namespace orrery::plan {
namespace {

using costmodel::GemmShape;
using costmodel::MemoryKernel;
using models::Block;
using models::Dim;
using models::Operator;
using models::OpKind;
using models::Tensor;

bool is_reduced(const Operator& op, Var var) {
  return std::find(op.reduced.begin(), op.reduced.end(), var) != op.reduced.end();
}

struct GemmExtents {
  std::int64_t m = 1;
  std::int64_t n = 0;
  std::int64_t k = 1;
  std::int64_t groups = 1;
  double imbalance = 1;               // m over that of the mean rank, of which FLOPs are counted
  std::vector<std::int64_t> columns;  // of each weight; n is their sum
  // fp8: shares of the input and of the output's gradient that this device casts.
  double cast_input = 1;
  double cast_gradient = 1;
  bool from_norm = false;           // which has written the input in fp8
  bool quantised_input = false;     // has arrived so
  bool quantised_gradient = false;  // of the output, has arrived so
};

bool is_permuted(const Block& block, const std::vector<int> Operator::*list, int tensor) {
  return std::any_of(block.operators.begin(), block.operators.end(), [&](const Operator& other) {
    return other.kind == OpKind::Permute &&
           std::find((other.*list).begin(), (other.*list).end(), tensor) != (other.*list).end();
  });
}

// Tokens arrive at experts in 8 bits, and so do the gradients of what experts give back.
void set_arriving(const Block& block, const Operator& op, const KernelContext& context,
                  GemmExtents& gemm) {
  if (!context.execution.quantised_dispatch || context.expert_ranks == 1 ||
      finds_rows_by_index(context)) {
    return;
  }
  gemm.quantised_input = is_permuted(block, &Operator::outputs, op.inputs.front());
  gemm.quantised_gradient = is_permuted(block, &Operator::inputs, op.outputs.front());
}

// Experts in one kernel: the first product writes what the second one reads with its gate and in
// 8 bits, and so do gradients on their way back (Megatron-Bridge cutedsl_fused_grouped_mlp;
// TransformerEngine pytorch/ops/fused/forward_grouped_mlp.py, backward_grouped_mlp.py).
void set_fused(const Block& block, const Operator& op, const KernelContext& context,
               GemmExtents& gemm) {
  if (op.kind != OpKind::GroupedGemm || !context.execution.fused_experts) {
    return;
  }
  for (const Operator& other : block.operators) {
    if (!is_between_experts(block, other)) {
      continue;
    }
    const auto has = [](const std::vector<int>& list, int tensor) {
      return std::find(list.begin(), list.end(), tensor) != list.end();
    };
    gemm.cast_input = has(other.outputs, op.inputs.front()) ? 0 : gemm.cast_input;
    gemm.cast_gradient = has(other.inputs, op.outputs.front()) ? 0 : gemm.cast_gradient;
  }
}

GemmExtents gemm_extents(const Block& block, const Operator& op, const Assignment& assignment,
                         const KernelContext& context) {
  GemmExtents gemm;
  const Tensor& input = tensor_at(block, op.inputs.front());
  const Layout input_layout = required_input(op, input, 0, assignment);
  gemm.from_norm = norm_writes_fp8(block, input, context);
  set_arriving(block, op, context, gemm);
  for (const Dim& dim : input.dims) {
    const std::int64_t extent = local_extent(dim, input_layout, context.mesh, context.extents);
    (is_reduced(op, dim.var) ? gemm.k : gemm.m) *= extent;
  }
  for (const int index : op.weights) {
    const Tensor& weight = tensor_at(block, index);
    const Layout layout = required_input(op, weight, 0, assignment);
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
      gemm.groups = chosen_experts(block, experts, gemm.m);
    }
  }
  const std::int64_t rows = ceil_div(gemm.m, copy_shards(input_layout, context.mesh));
  if (finds_rows_by_index(context) && is_permuted(block, &Operator::outputs, op.inputs.front())) {
    gemm.cast_input = static_cast<double>(gemm.m) / static_cast<double>(block.top_k * rows);
  }
  gemm.m = std::max<std::int64_t>(1, rows / gemm.groups);
  if (op.kind == OpKind::GroupedGemm && imbalance_of(context) > 1) {
    const auto even = static_cast<double>(gemm.m);
    gemm.m = std::llround(even * imbalance_of(context));
    gemm.imbalance = static_cast<double>(gemm.m) / even;
  }
  if (context.sequence_parallel && context.execution.fp8_gathers) {
    // What is gathered in fp8 was cast before: not tokens, of experts or latents, that stay cut.
    for (const Axis axis : kTensorAxes) {
      const auto& sharded = assignment[static_cast<std::size_t>(axis)];
      const bool sums = sharded && is_reduced(op, *sharded);
      const bool gathers = sums || input_layout[axis].is_replicated();
      (sums ? gemm.cast_gradient : gemm.cast_input) /= gathers ? context.mesh.of(axis) : 1;
    }
  }
  set_fused(block, op, context, gemm);
  return gemm;
}

// TransformerEngine issues a product for every expert, on four streams (common/gemm/
// cublaslt_gemm.cu, multi_stream_cublas_gemm). Measured times of grouped products are of such
// kernels and of what lies between them, so here they only take the host longer.
KernelCost gemm_kernel(const GemmShape& shape, double imbalance, const KernelContext& context) {
  const int launches = context.execution.expert_kernels ? static_cast<int>(shape.groups) : 1;
  return {context.device.gemm(shape), costmodel::flops_of(shape) / imbalance, launches,
          shape.groups > 1 ? CostClass::GroupedGemm : CostClass::Gemm};
}

// Bytes that SUMMA reads and writes beside a product: the blocks that are sent are copied into
// buffers first, by every rank for every piece; a product that adds up reads what it adds to.
double beside_pieces(const GemmShape& piece, bool adds_up) {
  const auto count = [&](std::int64_t rows, std::int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns) *
           static_cast<double>(piece.groups);
  };
  const double sent = count(piece.k, piece.n) + (adds_up ? count(piece.m, piece.k) : 0.0);
  const double added = adds_up ? count(piece.m, piece.n) : 0.0;
  return (2.0 * sent + added) * bytes_per_element(piece.dtype);
}

// SUMMA multiplies piece by piece (AB, ABT and ATB of Optimus and Colossal-AI's layer_2d): the
// forward adds up products of a part of the inner dimension, the backward makes a part of each
// gradient at a time, of which one operand is sent and the product reduced. Such products are
// smaller than the whole and fill the GPU less.
KernelCost in_pieces(GemmShape shape, std::int64_t GemmShape::*cut, double imbalance,
                     const KernelContext& context) {
  if (context.pieces > 1) {
    shape.*cut = ceil_div(shape.*cut, std::int64_t{context.pieces});
  }
  KernelCost cost = gemm_kernel(shape, imbalance, context);
  if (context.pieces > 1) {
    cost.time += context.device.memory_bound(Bytes(beside_pieces(shape, cut == &GemmShape::k)),
                                             MemoryKernel::Copy);
    cost.launches += 2;
  }
  cost.time = cost.time * static_cast<double>(context.pieces);
  cost.flops = cost.flops * static_cast<double>(context.pieces);
  cost.launches *= context.pieces;
  return cost;
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

// Megatron-LM core/transformer/moe/experts.py, TEGroupedMLP._apply_bias: for every expert t + b p,
// then one torch.cat. Bytes an element of 16 bits, with probabilities p of 16 bits: product 2,
// addition 6 and copy 4; backward, gradients of b and p: two products of 4 and their sums of 2
// each, and what torch.cat gives back 4. Probabilities of fp32 widen all of it: 4, 10, 8 and a cast
// of 6; backward twice the products of 10 and the sums of 4, gradients cast 6 and copied 6.
void add_eager_bias(const GemmExtents& gemm, const KernelContext& context, OperatorCost& cost) {
  const bool wide = dispatcher_facts(context.execution).fp32_probabilities;
  const double elements =
      static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.groups);
  const auto add = [&](KernelCost& pass, double bytes, double kernels) {
    pass.time +=
        context.device.memory_bound(Bytes(bytes * elements / kernels), MemoryKernel::Elementwise) *
        kernels;
    pass.launches += static_cast<int>(kernels);
  };
  const auto experts = static_cast<double>(gemm.groups);
  add(cost.forward, wide ? 28 : 12, 2 * experts + (wide ? 2 : 1));
  add(cost.input_grad, wide ? 40 : 16, 4 * experts + (wide ? 2 : 1));
}

// A bias outside the GEMM's epilogue: the output is read and written once more, unless the next
// kernel does it, and its gradient is a sum over the rows of the output's gradient. Where biases
// lie in epilogues, all of them, or those that the next kernel adds, may still need that sum; the
// kernel that casts a gradient to fp8 takes it on the way (TransformerEngine, bgrad_quantize).
void add_bias(const Block& block, const Operator& op, const GemmExtents& gemm,
              const KernelContext& context, OperatorCost& cost) {
  const double bytes = static_cast<double>(gemm.m) * static_cast<double>(gemm.n) *
                       static_cast<double>(gemm.groups) *
                       element_bytes(models::Element::Compute, context.precision);
  if (op.kind == OpKind::GroupedGemm && context.execution.eager_expert_bias &&
      is_permuted(block, &Operator::inputs, op.outputs.front())) {
    add_eager_bias(gemm, context, cost);
    return;
  }
  const bool next_adds = next_kernel_adds_bias(block, op);
  if (!context.execution.fused_bias && (!context.execution.fused_kernels || !next_adds)) {
    add_memory(cost.forward, 2.0 * bytes, MemoryKernel::Elementwise, context);
  }
  const bool casts = is_quantised(gemm_dtype(op, context.precision));
  if (!context.execution.fused_bias || (context.execution.bias_gradients_apart && !casts) ||
      (context.execution.bias_gradient_sums && next_adds)) {
    add_memory(cost.weight_grad, bytes, MemoryKernel::Elementwise, context);
  }
}

CastOperands cast_operands(const Block& block, const Operator& op, const GemmExtents& gemm,
                           const KernelContext& context) {
  const auto k = static_cast<double>(gemm.k);
  const auto n = static_cast<double>(gemm.n);
  const auto groups = static_cast<double>(gemm.groups);
  return {static_cast<double>(gemm.m) * groups,
          k,
          n,
          k * n * groups,
          gemm.cast_input,
          gemm.cast_gradient,
          gemm.from_norm,
          gemm.quantised_input,
          gemm.quantised_gradient,
          models::gives_input_gradient(block, op),
          models::gives_weight_gradient(block, op) && !context.forward_only,
          context.execution.expert_kernels ? static_cast<int>(gemm.groups) : 1};
}

OperatorCost one_gemm(const Block& block, const Operator& op, const KernelContext& context,
                      const GemmExtents& gemm) {
  const DType dtype = gemm_dtype(op, context.precision);
  const bool accumulates = context.execution.fused_grad_accumulation;
  const int bytes = element_bytes(models::Element::Compute, context.precision);
  const int gradient_bytes = accumulates && context.execution.fp32_gradients ? 4 : bytes;
  OperatorCost cost;
  const auto multiply = [&](const GemmShape& shape, std::int64_t GemmShape::*cut) {
    return in_pieces(shape, cut, gemm.imbalance, context);
  };
  GemmShape forward{gemm.m, gemm.n, gemm.k, gemm.groups, dtype, bytes};
  // A block's scale meets its part of the sum (TransformerEngine common/recipe/__init__.py,
  // Float8BlockScaling asserts a split accumulator for the forward product).
  forward.precise_sums = context.execution.fp8_scaling == Fp8Scaling::Blocks;
  cost.forward = multiply(forward, &GemmShape::k);
  if (!context.forward_only) {
    GemmShape input_grad{gemm.m, gemm.k, gemm.n, gemm.groups, dtype, bytes};
    input_grad.layout = costmodel::GemmLayout::NN;
    cost.input_grad = multiply(input_grad, &GemmShape::n);
    GemmShape weight_grad{gemm.n, gemm.k, gemm.m, gemm.groups, dtype, gradient_bytes};
    weight_grad.layout = costmodel::GemmLayout::NT;
    cost.weight_grad = multiply(weight_grad, &GemmShape::n);
  }
  if (is_quantised(dtype)) {
    add_casts(cast_operands(block, op, gemm, context), context, cost);
  }
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

// Products in fp8 want rows of every expert in multiples of 16 or 32. Tokens are copied to padded
// buffers before the first one and back behind the second, and so are gradients (Megatron-LM
// core/transformer/moe/experts.py, Fp8Padding and Fp8Unpadding of TEGroupedMLP).
void add_padding(const Block& block, const Operator& op, const GemmExtents& gemm,
                 const KernelContext& context, OperatorCost& cost) {
  if (op.kind != OpKind::GroupedGemm || !context.execution.expert_padding ||
      !is_quantised(gemm_dtype(op, context.precision))) {
    return;
  }
  const double rows = static_cast<double>(gemm.m) * static_cast<double>(gemm.groups);
  const auto copy = [&](std::int64_t width) {
    const double bytes = 2.0 * rows * static_cast<double>(width) *
                         element_bytes(models::Element::Compute, context.precision);
    add_memory(cost.forward, bytes, MemoryKernel::Copy, context);
    add_memory(cost.input_grad, bytes, MemoryKernel::Copy, context);
  };
  if (is_permuted(block, &Operator::outputs, op.inputs.front())) {
    copy(gemm.k);
  }
  if (is_permuted(block, &Operator::inputs, op.outputs.front())) {
    copy(gemm.n);
  }
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
    one.cast_input = sum.forward.launches > 0 ? 0 : whole.cast_input;
    const OperatorCost cost = one_gemm(block, op, context, one);
    add(sum.forward, cost.forward);
    add(sum.input_grad, cost.input_grad);
    add(sum.weight_grad, cost.weight_grad);
  }
  const double parts = static_cast<double>(whole.columns.size());
  const double passes = context.execution.fused_kernels ? parts + 1 : 3 * (parts - 1);
  add_memory(sum.input_grad,
             passes * static_cast<double>(whole.m) * static_cast<double>(whole.k) *
                 static_cast<double>(whole.groups) *
                 element_bytes(models::Element::Compute, context.precision),
             MemoryKernel::Elementwise, context);
  return sum;
}

}  // namespace

double accumulation_bytes(double elements, const KernelContext& context) {
  const int parameter = element_bytes(models::Element::Param, context.precision);
  const int gradient = context.execution.fp32_gradients ? 4 : parameter;
  const bool cast = context.execution.cast_gradients && gradient > parameter;
  return elements * (parameter + (cast ? 4 : 2) * gradient);
}

OperatorCost gemm_cost(const Block& block, const Operator& op, const Assignment& assignment,
                       const KernelContext& context) {
  const GemmExtents gemm = gemm_extents(block, op, assignment, context);
  OperatorCost cost = !context.execution.fused_projections && gemm.columns.size() > 1
                          ? separate_gemms(block, op, context, gemm)
                          : one_gemm(block, op, context, gemm);
  add_padding(block, op, gemm, context, cost);
  return cost;
}

}  // namespace orrery::plan
