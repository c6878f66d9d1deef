// SPDX-License-Identifier: Apache-2.0
// Which kernels the experts of TransformerEngine run (Megatron-LM core/transformer/moe/experts.py,
// TEGroupedMLP), for readers of launch scripts and of measured rows.
#pragma once

#include "plan/plan.hpp"

namespace orrery::plan {

// Products and casts of each expert by itself; their biases, where the network has some, by
// PyTorch's kernels (_apply_bias).
void use_transformer_engine_experts(bool has_biases, Execution& execution);

// Tokens are copied to rows that products in 8 bits and less want, unless their rows are padded
// already: by the router, by the dispatcher, or to a capacity beyond which tokens are dropped.
// After the dispatcher and the kernels are chosen.
void pad_expert_rows(bool few_bits, bool padded_before, Execution& execution);

}  // namespace orrery::plan
