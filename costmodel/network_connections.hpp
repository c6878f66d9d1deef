// SPDX-License-Identifier: Apache-2.0
// What NCCL's connections between nodes carry where they, and not the NICs, are the bound. NCCL has
// one connection (queue pair) a channel, one channel a peer for send and receive, and two channels
// for a ring through one NIC. Omni-Path's driver lets the processor move the bytes of a queue pair:
// 40.5 and 39.9 Gbit/s around the ring of 4 nodes with 8 and 4 A100, 2 channels each, 84.8 with 4
// V100 and 4 channels, 3 of them into one NIC (bigscience-workshop/bigscience,
// experiments/bandwidth, NCCL 2.10.3). Bytes a second; deterministic; O(1).
#pragma once

#include "topologies/cluster.hpp"

namespace orrery::costmodel {

struct ConnectionRates {
  double peer = 0;  // of a pair of ranks; 0: what the NIC carries
  double ring = 0;  // of a communicator
};
ConnectionRates connection_rates(const topologies::ScaleOut& network);

}  // namespace orrery::costmodel
