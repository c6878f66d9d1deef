// SPDX-License-Identifier: Apache-2.0
// What links between nodes are called, and what their names say: the kind of network and the rate
// of an adapter. Linear in the length of the text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace orrery::topologies {

// Whether a word in lower case names a kind of network or a generation of one: "roce", "hdr".
bool is_link_word(std::string_view word);

// The kind that a text names, as clusters spell it: "ib", "roce", "efa", "omni-path", "ethernet";
// "" where it names none.
std::string_view link_of(std::string_view text);

// Of a small message over a kind of network, with its unit.
std::string_view latency_of(std::string_view link);

// A name that says the rate of a port.
struct Generation {
  double gigabits = 0;
  std::string_view link = "";
  std::size_t begin = 0;  // of the name, and where it ends
  std::size_t end = 0;
};

// The first that a text names: "HDR", "8xNDR200", "Slingshot-11"; nothing where it names none.
std::optional<Generation> find_generation(std::string_view text);

}  // namespace orrery::topologies
