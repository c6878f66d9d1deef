// SPDX-License-Identifier: Apache-2.0
#include "plan/block/lookup_products.hpp"

#include <algorithm>

#include "plan/block/gemm_kernels.hpp"

namespace orrery::plan {

using costmodel::GemmShape;
using costmodel::MemoryKernel;
using models::Block;
using models::Dim;
using models::Operator;
using models::Tensor;

OperatorCost lookup_by_products(const Block& block, const Operator& op,
                                const Assignment& assignment, const KernelContext& context) {
  const Tensor& ids = tensor_at(block, op.inputs.front());
  const Tensor& table = tensor_at(block, op.weights.front());
  const Layout layout = required_input(op, table, 0, assignment);
  const std::int64_t tokens =
      local_elements(ids, required_input(op, ids, 0, assignment), context.mesh, context.extents);
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  for (const Dim& dim : table.dims) {
    const bool sums = std::find(op.reduced.begin(), op.reduced.end(), dim.var) != op.reduced.end();
    (sums ? rows : columns) *= local_extent(dim, layout, context.mesh, context.extents);
  }
  const DType dtype = unquantised(context.precision);
  const int bytes = element_bytes(models::Element::Compute, context.precision);
  const double one_hot = static_cast<double>(tokens) * static_cast<double>(rows) * bytes;
  GemmShape forward{tokens, columns, rows, 1, dtype, bytes};
  forward.layout = costmodel::GemmLayout::NN;
  const auto product = [&](const GemmShape& shape) {
    return KernelCost{context.device.gemm(shape), costmodel::flops_of(shape), 1, CostClass::Gemm};
  };
  OperatorCost cost;
  cost.forward = product(forward);
  add_memory(cost.forward, one_hot, MemoryKernel::Elementwise, context);
  const bool accumulates = context.execution.fused_grad_accumulation;
  GemmShape gradient{rows, columns, tokens, 1, dtype, bytes};
  gradient.output_bytes = accumulates && context.execution.fp32_gradients ? 4 : bytes;
  gradient.layout = costmodel::GemmLayout::NT;
  cost.input_grad = product(gradient);
  add_memory(cost.input_grad, one_hot, MemoryKernel::Elementwise, context);
  if (!accumulates) {
    add_memory(cost.input_grad, accumulation_bytes(static_cast<double>(rows * columns), context),
               MemoryKernel::Elementwise, context);
  }
  return cost;
}

}  // namespace orrery::plan
