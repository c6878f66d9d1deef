// SPDX-License-Identifier: Apache-2.0
// What the words behind a network's rate say of it: its unit, and whether it is that of a node, of
// an adapter or of a GPU. Linear in the length of the text.
#pragma once

#include <optional>
#include <string_view>

#include "topologies/network_words.hpp"

namespace orrery::topologies {

struct RateShare {
  StatedNetwork::RateOf of = StatedNetwork::RateOf::Unstated;
  int gpus = 1;  // that share the rate which is a GPU's: "per 2 GPUs"
};

// Gbit/s of the unit that begins a text ("Gb/s", "Gigabit Ethernet", "GigE"); 0 when it is none.
double unit_of_rate(std::string_view text);

// What the text behind a rate or a generation, of which `nics` are counted (0: not), says of it.
RateShare share_of_rate(std::string_view after, int nics);

// Whether it is called that of all adapters of a node.
bool says_whole_node(std::string_view after);

// Whether it is called that of a port.
bool says_per_port(std::string_view after);

// The GPUs that share an adapter, as any of a text's clauses says: "one NIC per GPU" (1), "one NIC
// per 2 GPUs", "2 GPUs per NIC", "two GPUs share a NIC" (2); 0 when none does.
int gpus_of_adapter(std::string_view text);

// "4x200 IB": a count of adapters times a rate that links have, which needs no unit.
std::optional<StatedNetwork> rate_without_unit(std::string_view text);

}  // namespace orrery::topologies
