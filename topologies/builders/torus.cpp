// SPDX-License-Identifier: Apache-2.0
// Torus of any number of dimensions: one router a node, two links a dimension, each as fast as all
// NICs of a node together. A dimension of size 2 has both links to the same neighbour.
// Uniform traffic is bound by the bisection across the longest dimension k: 2n/k links each way.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "topologies/builder.hpp"
#include "topologies/summary.hpp"

namespace orrery::topologies {
namespace {

const std::vector<int>& dimensions(const Cluster& cluster) {
  const std::vector<int>& sizes = cluster.fabric.dimensions;
  std::int64_t product = 1;
  for (const int size : sizes) {
    product = std::min(product * size, limits::kMaxDevices + 1);
  }
  if (sizes.empty() || product != cluster.num_nodes) {
    bad_input("/fabric/dimensions",
              fmt::format("the sizes of the torus multiply to {}, there are {} nodes",
                          sizes.empty() ? 0 : product, cluster.num_nodes),
              "for example [4, 4, 4] for 64 nodes");
  }
  return sizes;
}

void build(Graph& graph, const Cluster& cluster) {
  const std::vector<int>& sizes = dimensions(cluster);
  const ScaleOut& out = cluster.node.scale_out;
  const BytesPerSecond nic = out.nic_bandwidth * out.efficiency_fraction;
  std::vector<VertexId> routers;
  for (int node = 0; node < cluster.num_nodes; ++node) {
    routers.push_back(graph.add_vertex(VertexKind::Leaf, -1, node));
  }
  std::int64_t order = 0;
  for (const VertexId vertex : graph.nics()) {
    const auto node = static_cast<std::size_t>(graph.vertices()[vertex].node);
    graph.set_route_index(vertex, order++);
    graph.join(vertex, routers[node], nic, out.latency / 2.0, nic_width(cluster.node),
               LinkKind::Network);
  }
  int stride = 1;
  for (const int size : sizes) {
    for (int node = 0; node < cluster.num_nodes && size > 1; ++node) {
      const int next = (node / stride + 1) % size == 0 ? node - (size - 1) * stride : node + stride;
      graph.join(routers[static_cast<std::size_t>(node)], routers[static_cast<std::size_t>(next)],
                 nic * static_cast<double>(out.nics), cluster.fabric.switch_latency, 1,
                 LinkKind::Network);
    }
    stride *= size;
  }
}

// A torus has neither leaves nor pods: `share` says what a group keeps.
FabricScale scale(const Cluster& cluster) {
  dimensions(cluster);
  return {1, cluster.num_nodes, 1.0, 1.0};
}

int distance_in(int size, int a, int b) {
  const int distance = std::abs(a % size - b % size);
  return std::min(distance, size - distance);
}

// Rings: a hop over d links of a dimension shares each of them with d - 1 other rings. All-to-all:
// of what the nodes of a span of k send, count / (2 (count - 1)) crosses its middle, which has one
// link a node column each way, two when the span closes around the torus.
double share(const Cluster& cluster, const NodeGroup& group, Traffic traffic) {
  double kept = 1.0;
  std::int64_t below = 1;  // nodes of the dimensions before
  for (const int size : dimensions(cluster)) {
    const std::int64_t spanned = std::int64_t{group.count} * group.stride / below;
    const bool apart = spanned > 1 && group.stride < below * size;  // members differ here
    if (apart && traffic == Traffic::Ring) {
      const int hop = distance_in(size, 0, static_cast<int>(group.stride / below));
      kept = std::min(kept, 1.0 / std::max(hop, 1));
    } else if (apart) {
      const double span = static_cast<double>(std::min<std::int64_t>(spanned, size));
      const double links = spanned >= size ? 2 : 1;
      kept = std::min(kept, links * 4 * (group.count - 1) / (span * group.count));
    }
    below *= size;
  }
  return kept;
}

int switches_of_route(const Cluster& cluster, int a, int b) {
  int switches = 1;
  for (const int size : dimensions(cluster)) {
    switches += distance_in(size, a, b);
    a /= size;
    b /= size;
  }
  return switches;
}

}  // namespace

extern const TopologyBuilder builder_torus;
const TopologyBuilder builder_torus = {
    .name = "torus",
    .kind = BuilderKind::Fabric,
    .summary = "routers of the nodes joined as a torus",
    .build_fabric = build,
    .scale = scale,
    .share = share,
    .switches_between = switches_of_route,
};

}  // namespace orrery::topologies
