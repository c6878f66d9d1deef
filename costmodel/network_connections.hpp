// SPDX-License-Identifier: Apache-2.0
// What NCCL's connections between nodes carry where they, and not all NICs together, are the bound.
// NCCL has one connection (queue pair) a channel, one channel a peer for send and receive, and two
// channels for a ring through one NIC. Omni-Path's driver lets the processor move the bytes of a
// queue pair, and all GPUs of a socket use one NIC, so that two of four stay idle: 40.5 and 39.9
// Gbit/s around the ring of 4 nodes with 8 and 4 A100 and two channels, 84.8 with 4 V100 and four
// channels into one NIC (bigscience-workshop/bigscience, experiments/bandwidth, logs of NCCL 2.7
// and 2.10). Bytes a second; deterministic; O(1).
#pragma once

#include "topologies/cluster.hpp"

namespace orrery::costmodel {

struct ConnectionRates {
  double peer = 0;  // of a pair of ranks; 0: what the NIC carries
  double ring = 0;  // of a communicator, whose like all groups of its node use at once
};
// Between nodes of this kind, where `groups_per_node` communicators share the NICs of one.
ConnectionRates connection_rates(const topologies::Node& node, int groups_per_node);

// How many NICs NCCL sees as one: the plug-in of EFA, which declares its latency, shows the rails
// of a GPU as one adapter (aws/aws-ofi-nccl, nccl_ofi_topo_group).
int rails_of_adapter(const topologies::Node& node);

}  // namespace orrery::costmodel
