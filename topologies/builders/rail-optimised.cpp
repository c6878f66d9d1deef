// SPDX-License-Identifier: Apache-2.0
// Rail-optimised: NIC i of all nodes of a scalable unit sits on leaf i of that unit, so that equal
// NICs of a unit are one switch apart; spines join the rails (levels = 1: rail-only, GPUs relay).
#include <algorithm>

#include "topologies/builder.hpp"
#include "topologies/clos.hpp"

namespace orrery::topologies {
namespace {

void build(Graph& graph, const Cluster& cluster) {
  build_clos(graph, cluster, clos_shape(cluster, true));
}

FabricScale scale(const Cluster& cluster) {
  const ClosShape shape = clos_shape(cluster, true);
  FabricScale result;
  result.leaf_nodes = std::min(shape.per_leaf, cluster.num_nodes);
  result.pod_nodes = cluster.num_nodes;
  if (shape.levels == 1) {
    return result;
  }
  result.leaf_share = 1.0 / cluster.fabric.oversubscription;
  if (shape.levels == 3) {
    const std::int64_t pod = std::int64_t{shape.per_leaf} * shape.leaves_per_pod;
    result.pod_nodes = static_cast<int>(std::min<std::int64_t>(pod, cluster.num_nodes));
    result.pod_share = result.leaf_share / cluster.fabric.core_oversubscription;
  }
  return result;
}

int switches_between(const Cluster& cluster, int a, int b) {
  const ClosShape shape = clos_shape(cluster, true);
  const int leaf_a = a / shape.per_leaf;
  const int leaf_b = b / shape.per_leaf;
  if (leaf_a == leaf_b) {
    return 1;
  }
  const bool same_pod =
      shape.levels < 3 || leaf_a / shape.leaves_per_pod == leaf_b / shape.leaves_per_pod;
  return same_pod ? 3 : 5;
}

}  // namespace

extern const TopologyBuilder builder_rail_optimised;
const TopologyBuilder builder_rail_optimised = {
    .name = "rail-optimised",
    .kind = BuilderKind::Fabric,
    .summary = "leaves aligned with the NICs of the nodes, joined by spines",
    .build_fabric = build,
    .scale = scale,
    .switches_between = switches_between,
};

}  // namespace orrery::topologies
