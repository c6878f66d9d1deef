// SPDX-License-Identifier: Apache-2.0
// The cluster as a graph: GPUs, switches, CPUs and NICs joined by directed links. What works as one
// pipe is one link: the NVLinks of a GPU to its switches, parallel cables between two switches, the
// NICs that belong to one GPU. `parallel` counts the members, `bandwidth` is their sum in one
// direction. Links come in pairs: 2k goes one way, 2k + 1 back. Building is linear in the links,
// deterministic, and refused beyond limits::kMaxLinks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "topologies/cluster.hpp"

namespace orrery::topologies {

using VertexId = std::uint32_t;
using LinkId = std::uint32_t;

enum class VertexKind : std::uint8_t { Gpu, NvSwitch, PcieSwitch, Cpu, Nic, Leaf, Spine, Core };
enum class LinkKind : std::uint8_t { ScaleUp, Pcie, Socket, Network };
std::string to_text(VertexKind kind);
std::string to_text(LinkKind kind);

struct Vertex {
  VertexKind kind = VertexKind::Gpu;
  std::int32_t node = -1;        // -1: a switch of the fabric
  std::int32_t index = 0;        // among its kind, in its node or in the fabric
  std::int64_t route_index = 0;  // orders destinations so that equal-cost paths are used evenly
};

struct Link {
  VertexId from = 0;
  VertexId to = 0;
  BytesPerSecond bandwidth;
  Seconds latency;
  int parallel = 1;
  LinkKind kind = LinkKind::ScaleUp;
};

class Graph {
 public:
  VertexId add_vertex(VertexKind kind, int node, int index);
  // Both directions; adds to the existing pair when the two are already joined by this kind.
  void join(VertexId a, VertexId b, BytesPerSecond bandwidth_each, Seconds latency, int parallel,
            LinkKind kind);
  void set_route_index(VertexId vertex, std::int64_t index) {
    vertices_[vertex].route_index = index;
  }

  std::span<const Vertex> vertices() const { return vertices_; }
  std::span<const Link> links() const { return links_; }
  std::span<const LinkId> links_from(VertexId vertex) const { return outgoing_[vertex]; }
  std::span<const VertexId> gpus() const { return gpus_; }  // by rank
  std::span<const VertexId> nics() const { return nics_; }  // by node, then index
  std::string name(VertexId vertex) const;                  // "node 3 gpu 5", "spine 2"

  std::int64_t count(VertexKind kind) const;
  // Cables (links counted with `parallel`, one direction) between two kinds of vertices.
  std::int64_t count_cables(VertexKind a, VertexKind b) const;

 private:
  std::vector<Vertex> vertices_;
  std::vector<Link> links_;
  std::vector<std::vector<LinkId>> outgoing_;
  std::vector<VertexId> gpus_;
  std::vector<VertexId> nics_;
};

// All nodes with the fabric between them (none for one node).
Graph build_graph(const Cluster& cluster);

// NICs that belong to one GPU act as one of this width; a node has nics / width of them.
int nic_width(const Node& node);
int nic_groups(const Node& node);

}  // namespace orrery::topologies
