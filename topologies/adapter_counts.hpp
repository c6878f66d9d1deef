// SPDX-License-Identifier: Apache-2.0
// How many adapters of a node the words around a rate or a generation count: "8x HDR", "4 NICs of",
// "... x8", "... (4 NICs)". Linear in the length of the text.
#pragma once

#include <string_view>

namespace orrery::topologies {

inline constexpr int kMostAdaptersOfNode = 32;  // p5.48xlarge; more are of something else

struct AdapterCount {
  int nics = 0;   // 0: not counted
  int ports = 1;  // of each, counted or not: "2x dual-port", "dual port"
};

// The count that a word is, in digits or letters; 0 for other words.
int count_in_words(std::string_view word);

// Words in lower case: "node", "servers"; "nics"; of links and adapters ("roce", "nics").
bool is_node_word(std::string_view word);
bool is_adapter_word(std::string_view word);
bool is_network_word(std::string_view word);

// Whether "per node" or "/node" begins a text.
bool is_per_node(std::string_view text);

// The count that stands before a rate, or before a word that is an adapter itself ("4 HDR").
AdapterCount adapters_before(std::string_view text, bool before_adapter = false);

// The count right behind a rate or a generation, in a text that begins with the rest of its word
// ("Gb/s x4", "-11 x4"); 0 when there is none.
int adapters_behind(std::string_view text);

// The count of adapters that any of a text's clauses states: "4 NICs, ...", "..., 8 HCAs per node";
// 0 when there is none.
int adapters_named(std::string_view text);

// The count of a clause that is of all adapters of a node and says nothing else: "4 NICs per node";
// 0 when none is.
int adapters_of_node(std::string_view text);

// Whether the rest of a rate's clause calls it that of adapters, so that a number right before it
// counts them: "4 200" before "Gb/s NICs".
bool names_adapters_behind(std::string_view text);

// "4x200", "(4 x 200)": the adapters before just that rate; 0 when the text does not count it.
int adapters_of_rate(std::string_view text, double gigabits);

// Whether any word of a text is a count of adapters: "4x", "dual-rail", "8 NICs".
bool counts_adapters(std::string_view text);

}  // namespace orrery::topologies
