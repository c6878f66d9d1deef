// SPDX-License-Identifier: Apache-2.0
// All NICs on one ideal switch of as many ports as needed.
#include "topologies/builder.hpp"

namespace orrery::topologies {
namespace {

void build(Graph& graph, const Cluster& cluster) {
  const ScaleOut& out = cluster.node.scale_out;
  const VertexId leaf = graph.add_vertex(VertexKind::Leaf, -1, 0);
  std::int64_t order = 0;
  for (const VertexId nic : graph.nics()) {
    graph.join(nic, leaf, out.nic_bandwidth * out.efficiency_fraction, out.latency / 2.0,
               nic_width(cluster.node), LinkKind::Network);
    graph.set_route_index(nic, order++);
  }
}

FabricScale scale(const Cluster& cluster) {
  return {cluster.num_nodes, cluster.num_nodes, 1.0, 1.0};
}

int switches_between(const Cluster&, int, int) { return 1; }

}  // namespace

extern const TopologyBuilder builder_single_switch;
const TopologyBuilder builder_single_switch = {
    .name = "single-switch",
    .kind = BuilderKind::Fabric,
    .summary = "all NICs on one ideal switch",
    .build_fabric = build,
    .scale = scale,
    .switches_between = switches_between,
};

}  // namespace orrery::topologies
