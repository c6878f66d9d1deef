// SPDX-License-Identifier: Apache-2.0
// Sizes that the memory of a block is added up from; saved_activations() of cost.hpp is
// defined beside them.
#pragma once

#include "plan/block/steps.hpp"

namespace orrery::plan {

// Of a tensor of the block under a layout; none for index -1.
ByteCount tensor_bytes(const BlockContext& context, int tensor, const Layout& layout);

// Layout in which an operator keeps a tensor: as it was made, but as the operator reads it where it
// was made as partial sums, or where the operator reads a part of what all ranks of an axis made
// and nobody keeps more of it.
Layout saved_layout(const models::Block& block, const BlockRules& rules, const models::Operator& op,
                    int tensor, const std::vector<Layout>& produced);

// Gathered inputs and weights of the products beyond what is stored (gathered.hpp): kept from the
// forward to the backward, or held during the backward alone: what its recomputation gathered and
// the largest of one operator while that runs.
ByteCount kept_copies(const BlockContext& context);
ByteCount working_copies(const BlockContext& context);

// What the forward leaves for the backward by group of the operator that makes a tensor or keeps
// something for itself (what the block was handed counts as residuals): under Recompute::Operators
// less what that drops, otherwise all of it, each tensor once. Of a slice without its keys and
// values, which later slices read.
SavedByGroup saved_by_group(const BlockContext& context);

// Live only while the loss is differentiated.
ByteCount logit_gradients(const BlockContext& context);

// Keys and values as attention reads them, but for what it gathers.
ByteCount keys_and_values(const BlockContext& context);

}  // namespace orrery::plan
