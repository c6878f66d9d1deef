// SPDX-License-Identifier: Apache-2.0
// What the cost model asks about the network between nodes, from the port arithmetic of the fabric
// alone: constant time, no graph, so that clusters of any size cost nothing.
#pragma once

#include "base/units.hpp"
#include "topologies/cluster.hpp"

namespace orrery::topologies {

// Nodes first, first + stride, ... (count of them), in rank order.
struct NodeGroup {
  int first = 0;
  int count = 1;
  int stride = 1;
};

enum class Traffic { Ring, AllToAll };

// Switches on the shortest path between equal NICs of two nodes; 0 for the same node.
int switches_between(const Cluster& cluster, int a, int b);
// The longest of these between neighbours in the ring of the group, or between any two members.
int switches_within(const Cluster& cluster, const NodeGroup& group, Traffic traffic);
// Means over the hops of the group's ring in rank order, and of a binary tree over it (members
// 2^k apart).
double ring_switches(const Cluster& cluster, const NodeGroup& group);
double tree_switches(const Cluster& cluster, const NodeGroup& group);
// NIC to NIC through so many switches: scale_out.latency covers the first one.
Seconds network_latency(const Cluster& cluster, double switches);
// Share of the NIC bandwidth left for the group when all groups of this shape are busy at once:
// 1 below one leaf; above, what crosses divided into the uplinks. A ring crosses once for all its
// members below a leaf, all-to-all with every message to the outside. On a torus neighbouring rings
// keep the links they use for themselves; longer hops and all-to-all share them.
double uplink_share(const Cluster& cluster, const NodeGroup& group, Traffic traffic);

}  // namespace orrery::topologies
