// SPDX-License-Identifier: Apache-2.0
// What operators keep for their backward where the framework decides it: fused attention, router
// weights, products in 8 and 4 bits. O(operators) each.
#pragma once

#include <vector>

#include "plan/block/steps.hpp"

namespace orrery::plan {

// What an operator keeps under a recomputation choice. A product in 8 or 4 bits keeps its input as
// it was cast (Execution::fp8_inputs; Saved::copies is the share of the 16-bit tensor), unless
// - its own or the operator that makes the input is recomputed: then the 16-bit one is made anew
//   (Megatron-LM core/transformer/attention.py: set_for_recompute_input_layernorm, and experts.py);
// - another operator keeps the 16-bit tensor: then that serves (transformer_engine.py:
//   set_save_original_input), but for delayed scaling, which TransformerEngine refuses there
//   (pytorch/module/linear.py: save_original_input), so that both are kept.
std::vector<models::Saved> kept_by(const BlockContext& context, const models::Operator& op,
                                   Recompute recompute);

// The same, by operator of the block.
std::vector<std::vector<models::Saved>> kept_by_operators(const BlockContext& context,
                                                          Recompute recompute);

// The group that what an operator keeps counts to: an input as it was cast to that of its maker,
// like the tensor itself.
OperatorGroup kept_with(const models::Block& block, const models::Operator& op,
                        const models::Saved& saved);

// Whether heads are exchanged for positions between a fused attention and the product that reads
// its result, and the result is kept before and behind the exchange. A mix of ring and Ulysses
// keeps it behind alone and exchanges it back in the backward (TransformerEngine
// context_parallel.py: AttnFuncWithCPAndKVP2P).
bool keeps_both_results(const BlockContext& context, const models::Operator& attention);

// What so many bytes of an input take as tensor ranks gather it, in 8 bits or 16.
ByteCount as_gathered(const BlockContext& context, int tensor, ByteCount bytes);
// What it takes beside the part of the rank that it takes the place of, which is kept as it was
// cast or in 16 bits.
ByteCount beside_part(const BlockContext& context, int tensor, ByteCount whole, ByteCount part);

// Whether a tensor is reduced and scattered, or exchanged, on its way to a reader: what was
// communicated (kept_layout) takes its place, whatever axes did it. What is exchanged and gathered
// at once comes and goes.
bool is_moved(const Layout& from, const Layout& to, const Mesh& mesh);

// Whether a product's input and output gradient wait for its weight gradient as they were cast.
bool keeps_cast(const BlockContext& context, const models::Operator& op);

// What a cast tensor takes of the 16-bit one, scales of blocks included: a byte for 32 elements
// (mxfp8) or four for 128 (TransformerEngine pytorch/tensor/float8_blockwise_tensor.py).
double cast_share(const BlockContext& context);

}  // namespace orrery::plan
