// SPDX-License-Identifier: Apache-2.0
// Fields of a block's layout that --fix and --forbid know beside the degrees: the mesh of the
// tensor ranks, its broadcasts, what is kept gathered, the mix of context parallelism, the order of
// a causal ring, experts over context ranks, recomputed operators.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::search {

// "true" or "false"; Error for anything that is neither.
std::string parse_flag(std::string_view value, std::string_view where);

// tensor_parallel, tp_rows, tp_depth, tp_inner, ep_inside, broadcasts, keep_gathered, zigzag,
// ulysses_degree, expert_cp.
bool is_layout_field(std::string_view field);
std::vector<std::string> layout_field_names();
// The value in its one spelling; Error when the field does not take it.
std::string canonical_layout_value(std::string_view field, std::string_view value,
                                   std::string_view where);
void set_layout_field(std::string_view field, std::string_view value, plan::BlockPlan& layout);
// The layout with these degrees; without context ranks no experts are spread over them,
// and ep_inside says nothing where it changes nothing.
plan::BlockPlan with_degrees(plan::BlockPlan layout, int tp, int cp, int ep);

// Sets of operators that --allow operators tries: those that are cheap to run again for what they
// save, and more.
const std::vector<plan::OperatorSet>& tried_operator_sets();

// Sets of operators whose tensors --allow offload with --allow operators sends away: all of those
// that are costly to run again for what they save. The others are read and written at the rate of
// the device's memory when they run again, which is an order of magnitude above the host link's.
const std::vector<plan::OperatorSet>& offloaded_operator_sets();

}  // namespace orrery::search
