// SPDX-License-Identifier: Apache-2.0
// Whether the layouts that a plan stands for exist: every tensor of every block, as it is stored,
// produced and read, against its dimensions. Errors name block, tensor and axis. Without
// tensor_shares shards are even; the vocabulary and the tokens of an encoder are padded to the next
// multiple. O(blocks x operators x operands).
#pragma once

#include <string>

#include "plan/plan.hpp"

namespace orrery::plan {

// What check_plan asks first of a block's tensor-parallel mesh: that its factors make up tp.
void check_tensor_mesh(const BlockPlan& layout, const std::string& where);

// The same of `variables`: data axes share out the samples of a micro-batch, and a plan counts on
// it.
void check_variables(const Plan& plan, const BlockPlan& layout, const std::string& where);

// The same of experts: over which ranks they are spread, and that they divide.
void check_experts(const Plan& plan, const BlockPlan& layout, const std::string& where);

// The same of tensor_shares: how many, and what they cannot be combined with.
void check_tensor_shares(const Plan& plan, const BlockPlan& layout, const std::string& where);

// All layouts of a plan. A plan that passes check_plan has no bad layout by Megatron's axes; meshes
// of several tensor axes, mixes and stated variables are what remains to be checked.
void check_layouts(const Plan& plan, const std::string& where);
// The parts of it: that degrees divide what they cut; that tensors which meet were cut in one
// order, which depends on the axes with several ranks alone, not on their numbers.
void check_layout_sizes(const Plan& plan, const std::string& where);
void check_cut_orders(const Plan& plan, const std::string& where);

}  // namespace orrery::plan
