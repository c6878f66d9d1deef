// SPDX-License-Identifier: Apache-2.0
// The cell of the network between nodes in the words that topologies/network_words.hpp knows.
#pragma once

#include <string>
#include <string_view>

namespace orrery::studies {

// "1 NIC per node, 200 Gb/s" as "1x 200 Gb/s", "two GPUs share a 200 Gb/s NIC" as "200 Gb/s per 2
// GPUs"; other texts as they are. Linear in the length of the text.
std::string plain_network(std::string_view cell);

// Whether a remark states the network: a kind of it and a rate, "NCCL over 100G Ethernet".
bool states_network(std::string_view clause);

}  // namespace orrery::studies
