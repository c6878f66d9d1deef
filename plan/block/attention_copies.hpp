// SPDX-License-Identifier: Apache-2.0
// Copies around the attention core on one device: between the layouts of projections and attention,
// of heads that are repeated, and around the exchange of heads between context ranks.
#pragma once

#include "plan/block/kernels.hpp"

namespace orrery::plan {

// Out of the projection's result and back, and of their gradients, as `context.execution` says;
// `kv_heads` are those of the projection, those of `shape` may be repeated ones.
void add_layout_copies(const models::Block& block, const costmodel::AttentionShape& shape,
                       std::int64_t kv_heads, const KernelContext& context, OperatorCost& cost);

// Context ranks that exchange heads for positions (Ulysses, alone or inside a ring) lay every
// tensor out by rank before the exchange and put its parts in order after it: q, k, v and the
// context, and their gradients (TransformerEngine, context_parallel.py:
// flash_attn_a2a_communicate).
void add_exchange_copies(const costmodel::AttentionShape& shape, const KernelContext& context,
                         OperatorCost& cost);

// Keys and values written once for every query head, and the sums of their gradients (LLaMA's
// repeat_kv: expand, then reshape, and its backward).
void add_repetition(const costmodel::AttentionShape& shape, std::int64_t kv_heads,
                    const KernelContext& context, OperatorCost& cost);

}  // namespace orrery::plan
