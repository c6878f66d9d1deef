// SPDX-License-Identifier: Apache-2.0
// The clauses of a stated network, and which of them are of another network than the one that
// training's messages between nodes take: "8x HDR200 + 1x100 GbE storage". Linear in the length of
// the text.
#pragma once

#include <string>
#include <string_view>

namespace orrery::topologies {

// Whether a text has a word, in lower case, not as a part of a longer one.
bool holds_word(std::string_view text, std::string_view word);

// "3,200 Gb/s" as "3200 Gb/s", and the sign of multiplication as an "x".
std::string plain_signs(std::string_view text);

// Without the clauses and brackets of storage, frontends and management, and of the links within a
// node.
std::string without_side_networks(std::string_view text);

}  // namespace orrery::topologies
