// SPDX-License-Identifier: Apache-2.0
// What the layout of a block asks of the second backbone of a cascade (models::CascadeSpec), which
// has tokens, heads and widths of its own.
#pragma once

#include <cstdint>
#include <string>

#include "models/network.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

// Whether context ranks share the tokens of both backbones evenly, by causal rings, too.
bool splits_tokens(const models::NetworkSpec& spec, std::int64_t sequence, std::int64_t cp);

// Throws Error where ranks do not divide the second backbone by the rules that hold for the first.
void check_cascade_layout(const models::NetworkSpec& spec, const BlockPlan& layout,
                          const std::string& where);

}  // namespace orrery::plan
