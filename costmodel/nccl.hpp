// SPDX-License-Identifier: Apache-2.0
// NCCL's tuning model, uncorrected: latency and bandwidth of each algorithm and protocol for one
// group of ranks (formulas and constants of NVIDIA/nccl 2.30 src/graph/tuning.cc and search.cc).
// Times in us, bandwidths in GB/s of "algorithm bandwidth" (bytes of the nccl-tests size per
// time). Pure functions, O(1), no allocation.
//
// One change: NCCL looks size corrections up by floor(log2(bytes)), which makes time fall at some
// powers of two; here the table is interpolated in log2(bytes), equal to NCCL's at its grid points
// and monotone in between.
#pragma once

#include "sim/engine/tags.hpp"

namespace orrery::costmodel {

enum class Algorithm { None, Ring, Tree, Nvls, NvlsTree, CollNet, Pat, Direct };
enum class Protocol { None, LowLatency, LowLatency128, Simple };

namespace nccl {

enum class Generation { Volta, Ampere, Hopper, Blackwell };

// What NCCL's topology search finds for a group; "channels x speed" in GB/s.
struct Group {
  int ranks = 1;
  int per_node = 1;
  int nodes = 1;
  Generation generation = Generation::Ampere;
  bool nvlink = true;           // else PCIe latencies
  bool plain_tree = false;      // no NVSwitch: trees use the unbalanced pattern
  bool low_latency = true;      // LL is there ...
  bool low_latency_128 = true;  // ... and LL128
  int intra_channels = 0;
  double intra_bandwidth = 0;  // ring inside the node
  int inter_channels = 0;
  double inter_bandwidth = 0;  // through the NICs, of all ranks of the group on one node
  bool nvls = false;
  int nvls_channels = 0;
  double nvls_bandwidth = 0;
  bool coll_net = false;      // in-network reduction (SHARP)
  double overhead = 0;        // host overhead of a network step
  bool amd_host = false;      // caps of LL between nodes go by the maker of the CPUs
  double plugin_latency = 0;  // declared by the network plug-in
  // What a hop takes beyond the network or the link that NCCL's constants were measured on.
  double ring_network_latency = 0;
  double tree_network_latency = 0;
  double intra_latency = 0;  // negative for faster links
};

// The latency of a hop inside a node that the constants hold: LL, over NVLink or PCIe.
double usual_intra_latency(bool nvlink);

// time = latency + bytes / (1000 x bandwidth x size_factor); bandwidth 0: not available.
struct Cost {
  double latency = 0;
  double bandwidth = 0;
};

Cost cost(const Group& group, sim::CommKind kind, Algorithm algorithm, Protocol protocol,
          double bytes);
double size_factor(sim::CommKind kind, Algorithm algorithm, Protocol protocol, double bytes);

// What protocol Simple has under way before the first result is there, as bytes that take their
// time once more: the chunks of NVLS trees and PAT (enqueue.cc, calcCollChunking). 0: of other
// algorithms, which NCCL's constants and the profile's half_size stand for.
double bytes_under_way(const Group& group, sim::CommKind kind, Algorithm algorithm, double bytes);

// NCCL's channels for a message: fewer than `channels` while each thread would have too little.
int channels_used(const Group& group, Algorithm algorithm, Protocol protocol, double bytes);

// What NCCL's search lays out over a NIC of this rate: one, two or four channels (more when the NIC
// outruns the list) of a speed from its list. Never above the rate, monotone in it.
double quantised_nic_rate(Generation generation, double rate);

}  // namespace nccl
}  // namespace orrery::costmodel
