// SPDX-License-Identifier: Apache-2.0
#include "topologies/summary.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "topologies/builder.hpp"

namespace orrery::topologies {
namespace {

const TopologyBuilder& fabric_builder(const Cluster& cluster) {
  return find_builder(cluster.fabric.builder, BuilderKind::Fabric);
}

int node_of(const NodeGroup& group, int member) { return group.first + member * group.stride; }

void check(const Cluster& cluster, const NodeGroup& group) {
  ORRERY_CHECK(group.count >= 1 && group.stride >= 1 && group.first >= 0 &&
                   std::int64_t{group.first} + std::int64_t{group.count - 1} * group.stride <
                       cluster.num_nodes,
               "node group outside the cluster");
}

// Members in one block of `block` nodes, all groups alike; at least one, all in the only block.
double members_in(const Cluster& cluster, const NodeGroup& group, int block) {
  if (block >= cluster.num_nodes) {
    return group.count;
  }
  return std::clamp(static_cast<double>(block) / group.stride, 1.0,
                    static_cast<double>(group.count));
}

// Share left when `members` of `count` sit below uplinks that carry `up` of their NICs.
double share_above(double members, double count, double up, Traffic traffic) {
  if (members >= count) {
    return 1.0;
  }
  const double crossing =
      traffic == Traffic::Ring ? 1.0 / members : (count - members) / (count - 1.0);
  return std::min(1.0, up / crossing);
}

}  // namespace

int switches_between(const Cluster& cluster, int a, int b) {
  ORRERY_CHECK(a >= 0 && b >= 0 && std::max(a, b) < cluster.num_nodes, "no such node");
  return a == b ? 0 : fabric_builder(cluster).switches_between(cluster, a, b);
}

int switches_within(const Cluster& cluster, const NodeGroup& group, Traffic traffic) {
  check(cluster, group);
  if (group.count == 1) {
    return 0;
  }
  const TopologyBuilder& builder = fabric_builder(cluster);
  int longest =
      builder.switches_between(cluster, node_of(group, 0), node_of(group, group.count - 1));
  const int probes = traffic == Traffic::AllToAll ? group.count : std::min(group.count, 3);
  for (int i = 1; i < std::min(probes, 64); ++i) {
    const int from = traffic == Traffic::AllToAll ? 0 : i - 1;
    longest = std::max(longest,
                       builder.switches_between(cluster, node_of(group, from), node_of(group, i)));
  }
  return longest;
}

double ring_switches(const Cluster& cluster, const NodeGroup& group) {
  check(cluster, group);
  if (group.count == 1) {
    return 0;
  }
  const TopologyBuilder& builder = fabric_builder(cluster);
  const FabricScale scale = builder.scale(cluster);
  // Hops inside a leaf, out of a leaf and out of a pod; one in `members` is of the wider kind.
  const auto hop_after = [&](double members) {
    const int member = std::clamp(static_cast<int>(std::ceil(members)), 1, group.count - 1);
    return static_cast<double>(
        builder.switches_between(cluster, node_of(group, member - 1), node_of(group, member)));
  };
  double mean = hop_after(1);
  double narrower = mean;
  for (const int block : {scale.leaf_nodes, scale.pod_nodes}) {
    const double members = members_in(cluster, group, block);
    if (members > 1 && members < group.count) {
      mean += (hop_after(members) - narrower) / members;
      narrower = hop_after(members);
    }
  }
  return mean;
}

double tree_switches(const Cluster& cluster, const NodeGroup& group) {
  check(cluster, group);
  const TopologyBuilder& builder = fabric_builder(cluster);
  double sum = 0;
  int levels = 0;
  for (std::int64_t distance = 1; distance < group.count; distance *= 2) {
    const int member = static_cast<int>(distance);
    sum += builder.switches_between(cluster, node_of(group, 0), node_of(group, member));
    ++levels;
  }
  return levels > 0 ? sum / levels : 0;
}

Seconds network_latency(const Cluster& cluster, double switches) {
  if (switches <= 0) {
    return Seconds(0.0);
  }
  return cluster.node.scale_out.latency + cluster.fabric.switch_latency * (switches - 1);
}

double uplink_share(const Cluster& cluster, const NodeGroup& group, Traffic traffic) {
  check(cluster, group);
  if (group.count == 1) {
    return 1.0;
  }
  const TopologyBuilder& builder = fabric_builder(cluster);
  if (builder.share != nullptr) {
    return builder.share(cluster, group, traffic);
  }
  const FabricScale scale = builder.scale(cluster);
  const double leaf = members_in(cluster, group, scale.leaf_nodes);
  const double pod = members_in(cluster, group, scale.pod_nodes);
  const double count = group.count;
  return std::min(share_above(leaf, count, scale.leaf_share, traffic),
                  share_above(pod, count, scale.pod_share, traffic));
}

}  // namespace orrery::topologies
