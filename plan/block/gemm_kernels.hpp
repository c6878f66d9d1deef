// SPDX-License-Identifier: Apache-2.0
// Matrix products of an operator with what frameworks run around them: casts to fp8, biases outside
// the epilogue, gradient accumulation outside the kernel, projections by themselves.
#pragma once

#include "plan/block/kernels.hpp"

namespace orrery::plan {

OperatorCost gemm_cost(const models::Block& block, const models::Operator& op,
                       const Assignment& assignment, const KernelContext& context);

// A gradient that its kernel does not add itself is read and added to the buffer; a cast on the way
// writes and reads it once more.
double accumulation_bytes(double elements, const KernelContext& context);

}  // namespace orrery::plan
