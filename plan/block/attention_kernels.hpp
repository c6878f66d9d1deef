// SPDX-License-Identifier: Apache-2.0
// The kernels of the attention core on one device: one fused (flash) kernel, or GEMMs, softmax and
// dropout over materialised scores as Megatron-LM runs them, and the copies between the layouts of
// projections and attention. Times from the device model; bytes an element from the frameworks'
// public sources, listed in the .cpp file.
#pragma once

#include "plan/block/kernels.hpp"

namespace orrery::plan {

// Megatron's kernel of scale, mask and softmax (megatron/model/fused_softmax.py,
// is_kernel_available): scores of 16 bits, rows of at most 4,096 keys, sequences and batch x heads
// in multiples of 4.
bool fused_softmax_fits(const costmodel::AttentionShape& shape);

// Whether scores are cast to fp32 before the softmax and back after it.
bool casts_scores(const costmodel::AttentionShape& shape, Softmax kind);

// What one device computes of the operator, with its share of the heads and of the sequence.
costmodel::AttentionShape attention_shape(const models::Block& block, const models::Operator& op,
                                          const Assignment& assignment,
                                          const KernelContext& context);

// One fused kernel of this shape, in fp8 where the plan says so.
OperatorCost fused_attention_cost(costmodel::AttentionShape shape, const KernelContext& context);

// Times (s), FLOPs and bytes of all kernels of the core, forward and backward.
OperatorCost attention_cost(const models::Block& block, const models::Operator& op,
                            const Assignment& assignment, const KernelContext& context);

}  // namespace orrery::plan
