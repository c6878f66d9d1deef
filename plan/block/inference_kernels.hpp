// SPDX-License-Identifier: Apache-2.0
// Experts as engines of inference run them (vLLM layers/fused_moe/fused_moe.py; SGLang
// layers/moe/fused_moe_triton). Where no token travels to other replicas, products find the rows of
// each expert by their indices: tokens are neither copied for their experts nor sorted, and cast to
// fp8 once for all of them. What experts give back lies token by token and is added up (moe_sum).
#pragma once

#include "plan/block/kernels.hpp"

namespace orrery::plan {

inline bool finds_rows_by_index(const KernelContext& context) {
  return context.forward_only && context.mesh.of(Axis::Expert) == 1;
}

}  // namespace orrery::plan
