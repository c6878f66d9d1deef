// SPDX-License-Identifier: Apache-2.0
// Over how many ranks heads and widths divide.
#pragma once

#include <cstdint>

#include "models/network.hpp"

namespace orrery::plan {

// Whether so many ranks share out the key and value heads: evenly, or every head repeated.
bool splits_kv_heads(const models::NetworkSpec& spec, std::int64_t ranks);

// Whether so many tensor-parallel ranks hold as much of every head, width and adapter each. Experts
// are cut, too, or not by all of them (`expert_tp`).
bool cuts_evenly(const models::NetworkSpec& spec, std::int64_t ranks, bool whole_experts = false);

// Whether Ulysses over so many ranks (tp x cp) leaves each of them as many heads, an encoder's,
// too.
bool exchanges_heads(const models::NetworkSpec& spec, std::int64_t ranks);

}  // namespace orrery::plan
