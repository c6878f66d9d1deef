// SPDX-License-Identifier: Apache-2.0
// Time of one collective on a group, as NCCL decides it: algorithm (ring, tree, NVLS, NVLS tree,
// CollNet) x protocol (LL, LL128, Simple) by NCCL's own latency and bandwidth formulas and
// constants (NVIDIA/nccl 2.30 src/graph/tuning.cc, costmodel/nccl.hpp), corrected by the profile's
// five factors and, where logs were measured, by its residuals
// (costmodel/collective_residuals.hpp); never faster than the links. Sizes are what nccl-tests
// prints: the whole buffer for all-reduce, the gathered result, the input of a reduce-scatter, the
// per-rank buffer of an all-to-all, the message of a send.
//
// The fabric enters by its uplink share and by the switches beyond the first (topologies/summary):
// NCCL's hop latency already holds one switch of an ordinary network. One object serves one thread
// at a time: const calls remember what they asked the fabric.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "costmodel/group_shape.hpp"
#include "costmodel/nccl.hpp"
#include "costmodel/profile.hpp"
#include "costmodel/time_table.hpp"
#include "sim/engine/tags.hpp"
#include "topologies/cluster.hpp"

namespace orrery::costmodel {

std::string_view to_text(Algorithm algorithm);
std::string_view to_text(Protocol protocol);

struct CollectiveChoice {
  Seconds time;
  Algorithm algorithm = Algorithm::None;
  Protocol protocol = Protocol::None;
  int channels = 0;
};

class CollectiveModel {
 public:
  // `nccl`: 100 x major + minor of the version to predict where the profile tells them apart, 0 for
  // the newest.
  CollectiveModel(const topologies::Cluster& cluster, const Profile& profile, int nccl = 0);

  // One rank or zero bytes cost nothing. kind: AllReduce, AllGather, ReduceScatter, AllToAll,
  // Broadcast, SendReceive (not in `time`).
  CollectiveChoice choose(sim::CommKind kind, Bytes size, const GroupShape& group) const;
  Seconds time(sim::CommKind kind, Bytes size, const GroupShape& group) const;
  // NCCL's formula with the five corrections alone: what residuals are fitted against.
  CollectiveChoice formula(sim::CommKind kind, Bytes size, const GroupShape& group,
                           const CollectiveParameters& corrections) const;
  CollectiveChoice formula(sim::CommKind kind, Bytes size, const GroupShape& group) const {
    return formula(kind, size, group, corrections_of(group));
  }
  const CollectiveParameters& corrections_of(const GroupShape& group) const;
  // What a message in protocol Simple takes to go round the ring of a group, its bytes apart.
  Seconds ring_latency(const GroupShape& group) const;
  // Point-to-point, while a node sends `senders` such messages at once over all its NICs, between
  // nodes that far apart.
  Seconds send_receive(Bytes size, bool same_node, int senders, int node_stride = 1) const;

  const topologies::Cluster& cluster() const { return cluster_; }

 private:
  // What the fabric leaves of a group's NICs and adds to NCCL's latencies (us).
  struct FabricUse {
    int nodes = 0;
    int stride = 0;
    bool all_pairs = false;
    double share = 1;
    double latency = 0;
    double tree_latency = 0;
  };
  FabricUse fabric_use(int nodes, int stride, bool all_pairs) const;
  FabricUse computed_fabric_use(int nodes, int stride, bool all_pairs) const;
  nccl::Group nccl_group(const GroupShape& group) const;
  void lay_rings();
  double intra_bandwidth(int ranks, int gpu_stride) const;  // GB/s of rings inside a node
  double inter_bandwidth(const GroupShape& group) const;    // GB/s of the NICs of one node
  Seconds with_link(Seconds latency) const;  // inside a node, measured over the usual link
  CollectiveChoice all_to_all(Bytes size, const GroupShape& group) const;
  const TimeTable& table_of(sim::CommKind kind, const GroupShape& group) const;
  // What the links alone take, per byte.
  double wire_time(sim::CommKind kind, const GroupShape& group) const;

  topologies::Cluster cluster_;
  Profile profile_;
  nccl::Group node_;           // what does not depend on the group
  std::vector<double> intra_;  // GB/s by number of GPUs inside a node
  std::vector<int> intra_channels_;
  double nic_rate_ = 0;  // GB/s of one NIC as NCCL lays it out
  int nccl_ = 0;
  FabricClass network_ = FabricClass::InfiniBand;
  CollectiveParameters across_;  // corrections between nodes
  mutable TimeTables tables_;
  // The last shapes asked for: the port arithmetic of a fabric takes longer than a collective.
  mutable std::array<FabricUse, 16> fabric_uses_;
  mutable std::size_t oldest_use_ = 0;
};

}  // namespace orrery::costmodel
