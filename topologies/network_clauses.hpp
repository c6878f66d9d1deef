// SPDX-License-Identifier: Apache-2.0
// The clauses of a stated network, and which of them are of another network than the one that
// training's messages between nodes take: "8x HDR200 + 1x100 GbE storage". Linear in the length of
// the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::topologies {

// Whether a text has a word, in lower case, not as a part of a longer one.
bool holds_word(std::string_view text, std::string_view word);

// The words of a text in lower case, with "per" for what says it: "400 Gb/s/GPU", "per-GPU", "4
// NICs/node". The first of these leaves the signs that end clauses out, across which words go on:
// "one NIC (per GPU)".
std::vector<std::string> words_of(std::string_view text);
std::vector<std::string> words_of_clause(std::string_view clause);

// The clauses between commas, semicolons and brackets.
std::vector<std::string_view> plain_clauses(std::string_view text);

// "3,200 Gb/s" as "3200 Gb/s", and the sign of multiplication as an "x".
std::string plain_signs(std::string_view text);

// Without the clauses and brackets of storage, frontends and management, and of the links within a
// node.
std::string without_side_networks(std::string_view text);

}  // namespace orrery::topologies
