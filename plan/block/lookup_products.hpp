// SPDX-License-Identifier: Apache-2.0
// A lookup as products with one-hot tokens, which a kernel writes for each of them: of the rows,
// and in the backward of the table's gradient (google/praxis layers/embedding_softmax.py,
// lookup_style matmul).
#pragma once

#include "plan/block/kernels.hpp"

namespace orrery::plan {

OperatorCost lookup_by_products(const models::Block& block, const models::Operator& op,
                                const Assignment& assignment, const KernelContext& context);

}  // namespace orrery::plan
