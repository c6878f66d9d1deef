// SPDX-License-Identifier: Apache-2.0
// Kernels of ring attention: a causal one on a rank's own keys, one for each part of other ranks'
// keys that its queries see, and the merges of partial outputs and gradients.
#pragma once

#include <cstdint>

#include "plan/block/kernels.hpp"

namespace orrery::plan {

// Of a rank's queries over `parts` parts of the keys; of a slice every part has its share of the
// keys before it. Where ranks see unlike parts (a window, positions in order) of the slowest one.
OperatorCost ring_attention(const costmodel::AttentionShape& shape, std::int64_t parts,
                            const KernelContext& context);

}  // namespace orrery::plan
