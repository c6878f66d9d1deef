// SPDX-License-Identifier: Apache-2.0
// What a rank holds of a block (plan/simulation/layout_report.hpp): its tensors in their layouts,
// what becomes of them until the backward, and the states of its weights. O(operators x saved).
#pragma once

#include <string>
#include <vector>

#include "plan/block/states.hpp"
#include "plan/block/steps.hpp"
#include "plan/simulation/layout_report.hpp"

namespace orrery::plan {

// By tensor of the block, what its forward leaves of it for the backward.
std::vector<HeldUse> uses_of_tensors(const BlockContext& context);

// `with_table`: another block of the device counts the token table that tied weights are a use of.
std::vector<HeldTensor> held_tensors(const BlockContext& context, bool with_table);

// Gradients and optimizer states of a block, wherever they live.
std::vector<HeldTensor> held_states(const BlockContext& context, const BlockCost& cost,
                                    bool with_table);

}  // namespace orrery::plan
