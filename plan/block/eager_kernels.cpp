// SPDX-License-Identifier: Apache-2.0
#include "plan/block/eager_kernels.hpp"

#include <algorithm>
#include <string_view>

namespace orrery::plan {

namespace {

using models::Element;
using models::Operator;
using models::OpKind;

// rms_norm of ATen before its fused kernel (native/layer_norm.cpp), bytes an element of 2 bytes:
// cast 6, square 8, mean 4, scale 8, cast 6, weight 4. Backward: weight 4, its gradient 6 and the
// sum of it 2, cast 6, scale 8, gradient of the scale 12 and its sum 4, of the square 24, sum of
// both 12, cast 6. One kernel moves 4 and 6.
constexpr EagerPasses kRmsNorm = {36.0 / 4, 84.0 / 6, 7, 13};

// A norm of a copy in fp32 that gives 16 bits (InternLM/InternEvo modeling_internlm.py; apex
// csrc/layer_norm_cuda_kernel.cu): cast 6 and norm 6. Backward: gradient of the input 10 and of the
// weight 6, and the gradient cast 6.
constexpr EagerPasses kWideNorm = {12.0 / 4, 22.0 / 6, 2, 3};

// Rotary positions on complex numbers (pytorch/torchtitan, apply_rotary_emb): cast 6, product 8,
// cast 6, in both passes. One kernel moves 4.
constexpr EagerPasses kRotary = {20.0 / 4, 20.0 / 8, 3, 3};

// silu(gate) * up: 4 + 6; backward two products of 6 and silu's 6. One kernel moves 6 and 10.
constexpr EagerPasses kGated = {10.0 / 6, 18.0 / 10, 2, 3};

// The same of halves of one product, whose gradients are joined: 8 more.
constexpr EagerPasses kGatedHalves = {10.0 / 6, 26.0 / 10, 2, 4};

// Dropout, then the addition, both apart: the kernel that fuses them reads its operands once more.
constexpr EagerPasses kWithDropout = {2, 2, 2, 2};

bool writes_mask(const models::Block& block, const Operator& op) {
  for (const int output : op.outputs) {
    if (block.tensors[static_cast<std::size_t>(output)].element == Element::Mask) {
      return true;
    }
  }
  return false;
}

}  // namespace

EagerForm eager_form(const Operator& op, const Execution& execution) {
  if (execution.fp32_norms && op.kind == OpKind::Norm) {
    return EagerForm::WideNorm;
  }
  if (execution.eager_elementwise && op.kind == OpKind::Norm && op.weights.size() == 1) {
    return EagerForm::RmsNorm;  // no bias
  }
  const bool gated = op.kind == OpKind::Elementwise && !op.pointwise && op.inputs.size() == 2;
  return gated && (execution.eager_elementwise || !execution.fused_kernels) ? EagerForm::Gated
                                                                            : EagerForm::None;
}

EagerPasses eager_passes(const models::Block& block, const Operator& op,
                         const Execution& execution) {
  switch (eager_form(op, execution)) {
    case EagerForm::RmsNorm:
      return kRmsNorm;
    case EagerForm::WideNorm:
      return kWideNorm;
    case EagerForm::Gated:
      return execution.joins_gradients && execution.fused_projections ? kGatedHalves : kGated;
    case EagerForm::None:
      break;
  }
  if (execution.eager_elementwise && op.kind == OpKind::Elementwise && op.pointwise &&
      op.inputs.size() == 1 && op.role == models::OpRole::Rotary) {
    return kRotary;
  }
  const bool split = op.pointwise && !execution.fused_kernels && writes_mask(block, op);
  return split ? kWithDropout : EagerPasses{};
}

bool reruns_norms(const models::Block& block, const BlockPlan& layout, const Execution& execution) {
  return execution.reruns_norms && block.kind == models::BlockKind::Layer &&
         (layout.recompute == Recompute::None || layout.recompute == Recompute::Selective);
}

bool runs_with_norms(const models::Block& block, const Operator& op) {
  const auto is_normed = [&](const Operator& next) {
    return next.kind == OpKind::Norm && next.inputs.front() == op.outputs.front();
  };
  return op.kind == OpKind::Norm ||
         (op.kind == OpKind::Elementwise && op.pointwise &&
          std::any_of(block.operators.begin(), block.operators.end(), is_normed));
}

}  // namespace orrery::plan
