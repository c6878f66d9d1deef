// SPDX-License-Identifier: Apache-2.0
#include "plan/block/gemm_kernels.hpp"

#include <algorithm>
#include <vector>

#include "base/math.hpp"
#include "plan/block/quantised_casts.hpp"

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
  std::vector<std::int64_t> columns;  // of each weight; n is their sum
  // fp8: shares of the input and of the output's gradient that this device casts.
  double cast_input = 1;
  double cast_gradient = 1;
  bool from_norm = false;           // which has written the input in fp8
  bool quantised_input = false;     // has arrived so
  bool quantised_gradient = false;  // of the output, has arrived so
};

// Tokens arrive at experts in 8 bits, and so do the gradients of what experts give back.
void set_arriving(const Block& block, const Operator& op, const KernelContext& context,
                  GemmExtents& gemm) {
  if (!context.execution.quantised_dispatch || context.expert_ranks == 1) {
    return;
  }
  const auto permutes = [&](const std::vector<int> Operator::*list, int tensor) {
    return std::any_of(block.operators.begin(), block.operators.end(), [&](const Operator& other) {
      return other.kind == OpKind::Permute &&
             std::find((other.*list).begin(), (other.*list).end(), tensor) != (other.*list).end();
    });
  };
  gemm.quantised_input = permutes(&Operator::outputs, op.inputs.front());
  gemm.quantised_gradient = permutes(&Operator::inputs, op.outputs.front());
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
      gemm.groups = experts;
    }
  }
  const std::int64_t rows = ceil_div(gemm.m, copy_shards(input_layout, context.mesh));
  gemm.m = std::max<std::int64_t>(1, rows / gemm.groups);
  if (context.sequence_parallel && context.execution.fp8_gathers) {
    // What is gathered in fp8 was cast before.
    const auto& sharded = assignment[static_cast<std::size_t>(Axis::Tensor)];
    const bool sums = sharded && is_reduced(op, *sharded);
    (sums ? gemm.cast_gradient : gemm.cast_input) /= context.mesh.of(Axis::Tensor);
  }
  return gemm;
}

KernelCost gemm_kernel(const GemmShape& shape, const KernelContext& context) {
  return {context.device.gemm(shape), costmodel::flops_of(shape), 1, CostClass::Gemm};
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
KernelCost in_pieces(GemmShape shape, std::int64_t GemmShape::*cut, const KernelContext& context) {
  if (context.pieces > 1) {
    shape.*cut = ceil_div(shape.*cut, std::int64_t{context.pieces});
  }
  KernelCost cost = gemm_kernel(shape, context);
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

CastOperands cast_operands(const Block& block, const Operator& op, const GemmExtents& gemm) {
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
          models::gives_weight_gradient(block, op)};
}

OperatorCost one_gemm(const Block& block, const Operator& op, const KernelContext& context,
                      const GemmExtents& gemm) {
  const DType dtype = gemm_dtype(op, context.precision);
  const bool accumulates = context.execution.fused_grad_accumulation;
  const int gradient_bytes = accumulates && context.execution.fp32_gradients ? 4 : 2;
  OperatorCost cost;
  cost.forward = in_pieces({gemm.m, gemm.n, gemm.k, gemm.groups, dtype, 2}, &GemmShape::k, context);
  if (!context.forward_only) {
    GemmShape input_grad{gemm.m, gemm.k, gemm.n, gemm.groups, dtype, 2};
    input_grad.layout = costmodel::GemmLayout::NN;
    cost.input_grad = in_pieces(input_grad, &GemmShape::n, context);
    GemmShape weight_grad{gemm.n, gemm.k, gemm.m, gemm.groups, dtype, gradient_bytes};
    weight_grad.layout = costmodel::GemmLayout::NT;
    cost.weight_grad = in_pieces(weight_grad, &GemmShape::n, context);
  }
  if (is_quantised(dtype)) {
    add_casts(cast_operands(block, op, gemm), context, cost);
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
  return !context.execution.fused_projections && gemm.columns.size() > 1
             ? separate_gemms(block, op, context, gemm)
             : one_gemm(block, op, context, gemm);
}

}  // namespace orrery::plan
