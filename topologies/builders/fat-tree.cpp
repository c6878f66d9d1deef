// SPDX-License-Identifier: Apache-2.0
// Fat tree of two or three levels: the NICs of a node sit together on a leaf; oversubscription at
// the leaves, core_oversubscription above the pods, `planes` disjoint copies.
#include <algorithm>

#include "topologies/builder.hpp"
#include "topologies/clos.hpp"

namespace orrery::topologies {
namespace {

// Nodes that fit below so many terminals; a node on several leaves counts as one leaf.
int nodes_below(const Cluster& cluster, const ClosShape& shape, std::int64_t terminals) {
  const int per_node = nic_groups(cluster.node) / shape.planes;
  const std::int64_t nodes = std::max<std::int64_t>(terminals / per_node, 1);
  return static_cast<int>(std::min<std::int64_t>(nodes, cluster.num_nodes));
}

void build(Graph& graph, const Cluster& cluster) {
  build_clos(graph, cluster, clos_shape(cluster, false));
}

FabricScale scale(const Cluster& cluster) {
  const ClosShape shape = clos_shape(cluster, false);
  if (shape.levels == 1) {
    return {cluster.num_nodes, cluster.num_nodes, 1.0, 1.0};
  }
  FabricScale result;
  result.leaf_nodes = nodes_below(cluster, shape, shape.per_leaf);
  result.leaf_share = 1.0 / cluster.fabric.oversubscription;
  result.pod_nodes = cluster.num_nodes;
  if (shape.levels == 3) {
    const std::int64_t pod = std::int64_t{shape.per_leaf} * shape.leaves_per_pod;
    result.pod_nodes = nodes_below(cluster, shape, pod);
    result.pod_share = result.leaf_share / cluster.fabric.core_oversubscription;
  }
  return result;
}

int switches_between(const Cluster& cluster, int a, int b) {
  const ClosShape shape = clos_shape(cluster, false);
  const std::int64_t per_node = nic_groups(cluster.node) / shape.planes;
  const auto leaf = [&](int node) { return node * per_node / shape.per_leaf; };
  if (leaf(a) == leaf(b)) {
    return 1;
  }
  const bool same_pod =
      shape.levels < 3 || leaf(a) / shape.leaves_per_pod == leaf(b) / shape.leaves_per_pod;
  return same_pod ? 3 : 5;
}

}  // namespace

extern const TopologyBuilder builder_fat_tree;
const TopologyBuilder builder_fat_tree = {
    .name = "fat-tree",
    .kind = BuilderKind::Fabric,
    .summary = "folded Clos of one to three levels, NICs of a node on one leaf",
    .build_fabric = build,
    .scale = scale,
    .switches_between = switches_between,
};

}  // namespace orrery::topologies
