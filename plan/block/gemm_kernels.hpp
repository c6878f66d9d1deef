// SPDX-License-Identifier: Apache-2.0
// Matrix products of an operator with what frameworks run around them: casts to fp8, biases outside
// the epilogue, gradient accumulation outside the kernel, projections by themselves.
#pragma once

#include "plan/block/kernels.hpp"

namespace orrery::plan {

OperatorCost gemm_cost(const models::Block& block, const models::Operator& op,
                       const Assignment& assignment, const KernelContext& context);

// Linear layers run in fp8 where the plan says so; the head's logits stay in 16 bits.
DType gemm_dtype(const models::Operator& op, DType precision);

// Whether tensor-parallel ranks gather a tensor in fp8: one that fp8 products alone read, or, as
// its gradient, one that such a product makes (TransformerEngine pytorch/module: quantised before
// gather_along_first_dim; torchao Float8ColwiseParallel and Float8RowwiseParallel).
bool gathered_in_fp8(const models::Block& block, const models::Tensor& tensor,
                     const Execution& execution, DType precision);

// A gradient that its kernel does not add itself is read and added to the buffer; a cast on the way
// writes and reads it once more.
double accumulation_bytes(double elements, const KernelContext& context);

}  // namespace orrery::plan
