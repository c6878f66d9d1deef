// SPDX-License-Identifier: Apache-2.0
#include "costmodel/network_connections.hpp"

#include <algorithm>

namespace orrery::costmodel {

namespace {

constexpr double kOmniPathConnection = 20.1e9 / 8;  // 40.2 Gbit/s by two
constexpr double kOmniPathNic = 84.8e9 / 8;
constexpr int kRingChannels = 2;

}  // namespace

ConnectionRates connection_rates(const topologies::Node& node, int groups_per_node) {
  if (node.scale_out.link != "omni-path") {
    return {};
  }
  const int nics = std::min(node.scale_out.nics, std::max(1, node.sockets));
  return {kOmniPathConnection, std::min(kRingChannels * kOmniPathConnection,
                                        nics * kOmniPathNic / std::max(1, groups_per_node))};
}

int rails_of_adapter(const topologies::Node& node) {
  const bool merges = node.scale_out.plugin_latency.value() > 0;
  return merges ? std::max(1, node.scale_out.nics / std::max(1, node.gpus)) : 1;
}

}  // namespace orrery::costmodel
