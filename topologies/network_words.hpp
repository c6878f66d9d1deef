// SPDX-License-Identifier: Apache-2.0
// The network between nodes as a measurement states it in words: "8x200Gb IB HDR", "800 Gb/s per
// node", "InfiniBand NDR". Linear in the length of the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/cluster.hpp"

namespace orrery::topologies {

struct StatedNetwork {
  enum class RateOf { Node, Nic, Gpu, Unstated };
  int nics = 0;         // of a node; 0: not stated
  double gigabits = 0;  // of what `of` says
  RateOf of = RateOf::Unstated;
  int gpus_each = 1;           // that share the rate of a GPU: "per 2 GPUs"
  int delay_ms = 0;            // added by the operator of the network: "delay 10ms"; 0: none stated
  std::string_view link = "";  // "ib", "roce", "efa" or "" when not stated
  bool unread_count = false;   // the text counts something that may be its adapters
};

// Without a rate: the rate of an adapter by its InfiniBand generation; nothing when neither is
// said.
std::optional<StatedNetwork> parse_network(std::string_view words);

// Whether the rate is that of all adapters of a node: it says so, or it says nothing and is not
// what an adapter of the type has.
bool is_of_node(const StatedNetwork& stated, const Cluster& usual);

// What it changes of the usual node of which `gpus` are used.
std::vector<std::string> network_overrides(const StatedNetwork& stated, const Cluster& usual,
                                           int gpus);

}  // namespace orrery::topologies
