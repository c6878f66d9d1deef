// SPDX-License-Identifier: Apache-2.0
#include "costmodel/network_connections.hpp"

namespace orrery::costmodel {

namespace {

constexpr double kOmniPathConnection = 20.1e9 / 8;  // 40.2 Gbit/s by two
constexpr int kRingChannels = 2;

}  // namespace

ConnectionRates connection_rates(const topologies::ScaleOut& network) {
  if (network.link != "omni-path") {
    return {};
  }
  return {kOmniPathConnection, kRingChannels * kOmniPathConnection};
}

}  // namespace orrery::costmodel
