// SPDX-License-Identifier: Apache-2.0
// Dragonfly, dimensions {a, h, p}: groups of a routers, fully joined; each router has p NIC ports
// and h global links; at most a*h + 1 groups, each pair joined by the same number of global links.
// Minimal routes pass one local, one global and one local link (Kim et al., 2008).
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/math.hpp"
#include "topologies/builder.hpp"

namespace orrery::topologies {
namespace {

struct Shape {
  std::int64_t routers = 0;  // a
  std::int64_t global = 0;   // h
  std::int64_t ports = 0;    // p
  std::int64_t groups = 0;
  std::int64_t width = 1;
  std::int64_t per_router() const { return std::max<std::int64_t>(ports / width, 1); }
};

Shape shape_of(const Cluster& cluster) {
  const Fabric& fabric = cluster.fabric;
  constexpr const char* kWhere = "/fabric/dimensions";
  if (fabric.dimensions.size() != 3) {
    bad_input(kWhere, "a dragonfly needs three numbers",
              "[routers of a group, global links of a router, NIC ports of a router]");
  }
  Shape shape;
  shape.routers = fabric.dimensions[0];
  shape.global = fabric.dimensions[1];
  shape.ports = fabric.dimensions[2];
  shape.width = nic_width(cluster.node);
  const std::int64_t radix = shape.ports + shape.global + shape.routers - 1;
  if (radix > fabric.radix) {
    bad_input(kWhere, fmt::format("routers need {} ports, they have {}", radix, fabric.radix),
              "raise radix");
  }
  if (shape.width > shape.ports) {
    bad_input(kWhere,
              fmt::format("a GPU has {} NICs, a router {} ports", shape.width, shape.ports));
  }
  const std::int64_t terminals = std::int64_t{nic_groups(cluster.node)} * cluster.num_nodes;
  shape.groups = ceil_div(terminals, shape.routers * shape.per_router());
  if (shape.groups > shape.routers * shape.global + 1) {
    bad_input(kWhere, fmt::format("{} groups are needed", shape.groups),
              fmt::format("at most {}", shape.routers * shape.global + 1));
  }
  return shape;
}

void join_groups(Graph& graph, const Cluster& cluster, const Shape& shape,
                 const std::vector<VertexId>& routers, BytesPerSecond cable) {
  const std::int64_t ports = shape.routers * shape.global;
  const auto router = [&](std::int64_t group, std::int64_t port) {
    return routers[static_cast<std::size_t>(group * shape.routers + port / shape.global)];
  };
  for (std::int64_t a = 0; a < shape.groups; ++a) {
    for (std::int64_t b = a + 1; b < shape.groups; ++b) {
      const std::int64_t peers = shape.groups - 1;
      const std::int64_t to_b = b - a - 1;
      const std::int64_t to_a = peers - 1 - to_b;
      for (std::int64_t turn = 0; turn < ports / peers; ++turn) {
        graph.join(router(a, to_b + turn * peers), router(b, to_a + turn * peers), cable,
                   cluster.fabric.switch_latency, 1, LinkKind::Network);
      }
    }
  }
}

void build(Graph& graph, const Cluster& cluster) {
  const Shape shape = shape_of(cluster);
  const ScaleOut& out = cluster.node.scale_out;
  const BytesPerSecond cable = out.nic_bandwidth * out.efficiency_fraction;
  std::vector<VertexId> routers;
  for (std::int64_t i = 0; i < shape.groups * shape.routers; ++i) {
    routers.push_back(graph.add_vertex(VertexKind::Leaf, -1, static_cast<int>(i)));
  }
  std::int64_t order = 0;
  for (const VertexId nic : graph.nics()) {
    graph.set_route_index(nic, order);
    graph.join(nic, routers[static_cast<std::size_t>(order++ / shape.per_router())], cable,
               out.latency / 2.0, static_cast<int>(shape.width), LinkKind::Network);
  }
  for (std::int64_t first = 0; first < shape.groups * shape.routers; first += shape.routers) {
    for (std::int64_t a = first; a < first + shape.routers; ++a) {
      for (std::int64_t b = a + 1; b < first + shape.routers; ++b) {
        graph.join(routers[static_cast<std::size_t>(a)], routers[static_cast<std::size_t>(b)],
                   cable, cluster.fabric.switch_latency, 1, LinkKind::Network);
      }
    }
  }
  join_groups(graph, cluster, shape, routers, cable);
}

FabricScale scale(const Cluster& cluster) {
  const Shape shape = shape_of(cluster);
  const std::int64_t per_node = nic_groups(cluster.node);
  const auto nodes = [&](std::int64_t terminals) {
    return static_cast<int>(std::clamp<std::int64_t>(terminals / per_node, 1, cluster.num_nodes));
  };
  const double ports = static_cast<double>(shape.ports);
  FabricScale result;
  result.leaf_nodes = nodes(shape.per_router());
  result.pod_nodes = nodes(shape.per_router() * shape.routers);
  const std::int64_t used = shape.routers - 1 + (shape.groups > 1 ? shape.global : 0);
  result.leaf_share = std::min(1.0, static_cast<double>(used) / ports);
  result.pod_share = std::min(1.0, static_cast<double>(shape.global) / ports);
  return result;
}

// The usual minimal path; pairs whose routers hold the global link themselves are shorter.
int switches_between(const Cluster& cluster, int a, int b) {
  const Shape shape = shape_of(cluster);
  const std::int64_t per_node = nic_groups(cluster.node);
  const auto router = [&](int node) { return node * per_node / shape.per_router(); };
  if (router(a) == router(b)) {
    return 1;
  }
  return router(a) / shape.routers == router(b) / shape.routers ? 2 : 4;
}

}  // namespace

extern const TopologyBuilder builder_dragonfly;
const TopologyBuilder builder_dragonfly = {
    .name = "dragonfly",
    .kind = BuilderKind::Fabric,
    .summary = "groups of fully joined routers, global links between all groups",
    .build_fabric = build,
    .scale = scale,
    .switches_between = switches_between,
};

}  // namespace orrery::topologies
