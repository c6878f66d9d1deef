// SPDX-License-Identifier: Apache-2.0
// What PyTorch moves for an element-wise operator when nothing fuses its kernels, as a multiple of
// what one fused kernel moves, and how many kernels that takes. Counted from the kernels that
// autograd runs, 16-bit activations that are computed with in fp32.
#pragma once

#include <cstdint>

#include "models/operators.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

struct EagerPasses {
  double forward = 1;
  double backward = 1;
  int forward_kernels = 1;
  int backward_kernels = 1;
};

// Operators of which PyTorch's kernels keep other tensors than a fused one.
enum class EagerForm : std::uint8_t { None, RmsNorm, WideNorm, Gated };
EagerForm eager_form(const models::Operator& op, const Execution& execution);

EagerPasses eager_passes(const models::Block& block, const models::Operator& op,
                         const Execution& execution);

// Whether norms of a block run again in its backward though the block as a whole does not.
bool reruns_norms(const models::Block& block, const BlockPlan& layout, const Execution& execution);
// A norm, or the addition in front of one.
bool runs_with_norms(const models::Block& block, const models::Operator& op);

}  // namespace orrery::plan
