// SPDX-License-Identifier: Apache-2.0
// Nodes, batches and their outcomes as bytes, for checkpoints and for messages between processes.
#pragma once

#include "base/bytes.hpp"
#include "search/tree/frontier.hpp"

namespace orrery::search {

inline constexpr std::size_t kNodeBytes = 8 + 8 + 4 + 3 * 2 + 2;

void write(ByteWriter& out, const Node& node);
void write(ByteWriter& out, const Overflow& overflow);
void write(ByteWriter& out, const Known& known);
void write(ByteWriter& out, const Outcomes& outcomes);

// Whether the indices exist is for the caller to check.
Node read_node(ByteReader& in);
Overflow read_overflow(ByteReader& in);
Known read_known(ByteReader& in);
Outcomes read_outcomes(ByteReader& in);

}  // namespace orrery::search
