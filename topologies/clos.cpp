// SPDX-License-Identifier: Apache-2.0
#include "topologies/clos.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/math.hpp"

namespace orrery::topologies {
namespace {

constexpr const char* kWhere = "/fabric";

int at_least(std::int64_t value) { return static_cast<int>(std::max<std::int64_t>(value, 1)); }

// Whole part of a quotient that may be exact but for rounding.
int whole(double value) { return static_cast<int>(std::floor(value + 1e-9)); }

// The smallest divisor of n that is >= least, or 0.
int divisor_from(std::int64_t n, std::int64_t least) {
  for (const std::int64_t divisor : divisors(n)) {
    if (divisor >= least) {
      return static_cast<int>(divisor);
    }
  }
  return 0;
}

int spine_radix(const Fabric& fabric) {
  return fabric.spine_radix > 0 ? fabric.spine_radix : fabric.radix;
}

int terminals_per_leaf(const Fabric& fabric, const ClosShape& shape, int terminals_per_node) {
  const int on_leaf_of_a_node = shape.rails > 1 ? 1 : terminals_per_node;
  if (fabric.nodes_per_leaf > 0) {
    const std::int64_t ports =
        std::int64_t{fabric.nodes_per_leaf} * on_leaf_of_a_node * shape.width;
    if (ports > fabric.radix) {
      bad_input(kWhere,
                fmt::format("{} nodes on a leaf need {} ports of {}", fabric.nodes_per_leaf, ports,
                            fabric.radix),
                "lower nodes_per_leaf or raise radix");
    }
    return fabric.nodes_per_leaf * on_leaf_of_a_node;
  }
  const double share = fabric.oversubscription / (1.0 + fabric.oversubscription);
  const int fit = whole(fabric.radix * share) / shape.width;
  if (fit < 1) {
    bad_input(kWhere,
              fmt::format("a leaf of {} ports holds no NIC of {} ports", fabric.radix, shape.width),
              "raise radix");
  }
  return fit > on_leaf_of_a_node ? fit / on_leaf_of_a_node * on_leaf_of_a_node : fit;
}

void set_uplinks(const Fabric& fabric, ClosShape& shape) {
  const int down = shape.per_leaf * shape.width;
  shape.uplinks = at_least(whole(down / fabric.oversubscription));
  if (down + shape.uplinks > fabric.radix) {
    bad_input(kWhere,
              fmt::format("a leaf needs {} ports down and {} up, it has {}", down, shape.uplinks,
                          fabric.radix),
              "lower nodes_per_leaf, or raise radix or oversubscription");
  }
}

bool fits_two_levels(const Fabric& fabric, ClosShape& shape) {
  if (fabric.leaves_per_pod > 0 && shape.num_leaves() > fabric.leaves_per_pod) {
    return false;
  }
  const std::int64_t cables = std::int64_t{shape.num_leaves()} * shape.uplinks;
  shape.spines_per_pod = divisor_from(shape.uplinks, ceil_div(cables, spine_radix(fabric)));
  shape.levels = 2;
  shape.leaves_per_pod = shape.num_leaves();
  return shape.spines_per_pod > 0;
}

[[noreturn]] void too_large(const Fabric& fabric, const ClosShape& shape) {
  bad_input(kWhere,
            fmt::format("{} leaves do not fit {} levels of {}-port switches", shape.num_leaves(),
                        fabric.levels, spine_radix(fabric)),
            fabric.levels < 3 ? "set levels to 3 or raise spine_radix" : "raise spine_radix");
}

void set_three_levels(const Fabric& fabric, ClosShape& shape) {
  const int radix = spine_radix(fabric);
  const double core = fabric.core_oversubscription;
  const int down = whole(radix * core / (1.0 + core));
  if (fabric.levels < 3 || down < 1) {
    too_large(fabric, shape);
  }
  const int most = fabric.leaves_per_pod > 0 ? fabric.leaves_per_pod : down;
  shape.levels = 3;
  shape.pods_per_rail = static_cast<int>(ceil_div(shape.leaves_per_rail, most));
  shape.leaves_per_pod =
      fabric.leaves_per_pod > 0
          ? most
          : static_cast<int>(ceil_div(shape.leaves_per_rail, shape.pods_per_rail));
  shape.pods = shape.pods_per_rail * shape.rails;
  const std::int64_t cables = std::int64_t{shape.leaves_per_pod} * shape.uplinks;
  shape.spines_per_pod = divisor_from(shape.uplinks, ceil_div(cables, down));
  if (shape.spines_per_pod == 0) {
    bad_input(kWhere,
              fmt::format("{} leaves of a pod with {} uplinks each need more than {} spines",
                          shape.leaves_per_pod, shape.uplinks, shape.uplinks),
              fmt::format("at most {} leaves_per_pod with {}-port spines", down, radix));
  }
  const std::int64_t spine_down = cables / shape.spines_per_pod;
  shape.spine_uplinks = at_least(whole(static_cast<double>(spine_down) / core));
  const std::int64_t pod_up = std::int64_t{shape.spines_per_pod} * shape.spine_uplinks;
  if (spine_down + shape.spine_uplinks > radix) {
    too_large(fabric, shape);
  }
  shape.cores = divisor_from(pod_up, ceil_div(pod_up * shape.pods, radix));
  if (shape.cores == 0) {
    shape.cores = static_cast<int>(pod_up);
  }
}

// Adds one plane; `first_*` number its switches within the whole fabric.
class PlaneWiring {
 public:
  PlaneWiring(Graph& graph, const Cluster& cluster, const ClosShape& shape, int plane)
      : graph_(graph), cluster_(cluster), shape_(shape), plane_(plane) {
    const ScaleOut& out = cluster.node.scale_out;
    cable_ = out.nic_bandwidth * out.efficiency_fraction;
  }

  void wire() {
    add(VertexKind::Leaf, shape_.num_leaves(), leaves_);
    attach_terminals();
    if (shape_.levels >= 2) {
      add(VertexKind::Spine, shape_.num_spines(), spines_);
      join_leaves();
    }
    if (shape_.levels == 3) {
      add(VertexKind::Core, shape_.cores, cores_);
      join_spines();
    }
  }

 private:
  void add(VertexKind kind, int count, std::vector<VertexId>& ids) {
    for (int i = 0; i < count; ++i) {
      ids.push_back(graph_.add_vertex(kind, -1, plane_ * count + i));
    }
  }

  void attach_terminals() {
    const int groups = nic_groups(cluster_.node);
    const int per_node = groups / shape_.planes;
    for (int node = 0; node < cluster_.num_nodes; ++node) {
      for (int i = 0; i < per_node; ++i) {
        const std::int64_t nic = std::int64_t{node} * groups + i * shape_.planes + plane_;
        const VertexId vertex = graph_.nics()[static_cast<std::size_t>(nic)];
        const std::int64_t in_node = std::int64_t{node} * per_node + i;
        const std::int64_t leaf =
            shape_.rails > 1 ? std::int64_t{i} * shape_.leaves_per_rail + node / shape_.per_leaf
                             : in_node / shape_.per_leaf;
        const std::int64_t order =
            shape_.rails > 1 ? std::int64_t{i} * cluster_.num_nodes + node : in_node;
        graph_.set_route_index(vertex, order);
        graph_.join(vertex, leaves_[static_cast<std::size_t>(leaf)], cable_,
                    cluster_.node.scale_out.latency / 2.0, shape_.width, LinkKind::Network);
      }
    }
  }

  int pod_of(int leaf) const {
    if (shape_.levels < 3) {
      return 0;
    }
    const int rail = leaf / shape_.leaves_per_rail;
    const int in_rail = leaf % shape_.leaves_per_rail;
    return rail * shape_.pods_per_rail + in_rail / shape_.leaves_per_pod;
  }

  void join_leaves() {
    const int bundle = shape_.uplinks / shape_.spines_per_pod;
    for (int leaf = 0; leaf < shape_.num_leaves(); ++leaf) {
      const int first = pod_of(leaf) * shape_.spines_per_pod;
      for (int i = 0; i < shape_.spines_per_pod; ++i) {
        graph_.join(leaves_[static_cast<std::size_t>(leaf)],
                    spines_[static_cast<std::size_t>(first + i)], cable_,
                    cluster_.fabric.switch_latency, bundle, LinkKind::Network);
      }
    }
  }

  void join_spines() {
    for (int spine = 0; spine < shape_.num_spines(); ++spine) {
      const std::int64_t first = std::int64_t{spine % shape_.spines_per_pod} * shape_.spine_uplinks;
      for (int i = 0; i < shape_.spine_uplinks; ++i) {
        graph_.join(spines_[static_cast<std::size_t>(spine)],
                    cores_[static_cast<std::size_t>((first + i) % shape_.cores)], cable_,
                    cluster_.fabric.switch_latency, 1, LinkKind::Network);
      }
    }
  }

  Graph& graph_;
  const Cluster& cluster_;
  const ClosShape& shape_;
  int plane_;
  BytesPerSecond cable_;
  std::vector<VertexId> leaves_;
  std::vector<VertexId> spines_;
  std::vector<VertexId> cores_;
};

}  // namespace

ClosShape clos_shape(const Cluster& cluster, bool by_rail) {
  const Fabric& fabric = cluster.fabric;
  const int groups = nic_groups(cluster.node);
  if (groups % fabric.planes != 0) {
    bad_input(kWhere,
              fmt::format("{} NICs of a node do not divide into {} planes", groups, fabric.planes),
              "planes must divide node.scale_out.nics");
  }
  const int per_node = groups / fabric.planes;
  ClosShape shape;
  shape.planes = fabric.planes;
  shape.width = nic_width(cluster.node);
  shape.rails = by_rail ? per_node : 1;
  const std::int64_t terminals = std::int64_t{per_node} * cluster.num_nodes;
  if (terminals * shape.width * shape.planes > limits::kMaxLinks / 2) {
    bad_input(kWhere, "too many NICs", fmt::format("at most {}", limits::kMaxLinks / 2));
  }
  shape.terminals = static_cast<int>(terminals);
  shape.per_leaf = terminals_per_leaf(fabric, shape, per_node);
  shape.leaves_per_rail = static_cast<int>(ceil_div(terminals / shape.rails, shape.per_leaf));
  if (shape.num_leaves() == 1 || (by_rail && fabric.levels == 1 && shape.leaves_per_rail == 1)) {
    return shape;
  }
  if (fabric.levels == 1) {
    too_large(fabric, shape);
  }
  set_uplinks(fabric, shape);
  if (!fits_two_levels(fabric, shape)) {
    set_three_levels(fabric, shape);
  }
  return shape;
}

void build_clos(Graph& graph, const Cluster& cluster, const ClosShape& shape) {
  for (int plane = 0; plane < shape.planes; ++plane) {
    PlaneWiring(graph, cluster, shape, plane).wire();
  }
}

}  // namespace orrery::topologies
