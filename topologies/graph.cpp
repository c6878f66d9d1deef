// SPDX-License-Identifier: Apache-2.0
#include "topologies/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "topologies/builder.hpp"

namespace orrery::topologies {
namespace {

constexpr std::array<const char*, 8> kVertexNames = {"gpu", "nvswitch", "pcisw", "cpu",
                                                     "nic", "leaf",     "spine", "core"};
constexpr std::array<const char*, 4> kLinkNames = {"scale-up", "pcie", "socket", "network"};

// A GPU-to-GPU hop over PCIe takes NCCL 1 us (ring LL, src/graph/tuning.cc) and has four links.
constexpr Seconds kPcieLatency{0.25e-6};
// More sockets than this are not one machine: only the two of a tray are joined.
constexpr int kMaxJoinedSockets = 8;

BytesPerSecond socket_bandwidth(const Node& node) {
  return node.socket_bandwidth.value() > 0 ? node.socket_bandwidth : node.host_link_per_gpu;
}

std::vector<VertexId> add_sockets(Graph& graph, const Node& node, int node_index) {
  std::vector<VertexId> cpus;
  for (int socket = 0; socket < node.sockets; ++socket) {
    cpus.push_back(graph.add_vertex(VertexKind::Cpu, node_index, socket));
  }
  for (int a = 0; a < node.sockets; ++a) {
    const bool all = node.sockets <= kMaxJoinedSockets;
    const int last = all ? node.sockets - 1 : std::min(a + 1 - a % 2, node.sockets - 1);
    for (int b = a + 1; b <= last; ++b) {
      graph.join(cpus[static_cast<std::size_t>(a)], cpus[static_cast<std::size_t>(b)],
                 socket_bandwidth(node), kPcieLatency, 1, LinkKind::Socket);
    }
  }
  return cpus;
}

// What each GPU hangs on: a PCIe switch, or its socket.
std::vector<VertexId> add_host(Graph& graph, const Node& node, int node_index) {
  const std::vector<VertexId> cpus = add_sockets(graph, node, node_index);
  std::vector<VertexId> hosts;
  const int per_switch = node.gpus_per_pcie_switch;
  for (int gpu = 0; gpu < node.gpus; ++gpu) {
    const VertexId cpu =
        cpus[static_cast<std::size_t>(std::int64_t{gpu} * node.sockets / node.gpus)];
    if (per_switch == 0) {
      hosts.push_back(cpu);
    } else if (gpu % per_switch == 0) {
      hosts.push_back(graph.add_vertex(VertexKind::PcieSwitch, node_index, gpu / per_switch));
      graph.join(hosts.back(), cpu, node.host_link_per_gpu, kPcieLatency, 1, LinkKind::Pcie);
    } else {
      hosts.push_back(hosts.back());
    }
  }
  return hosts;
}

void add_node(Graph& graph, const Node& node, const TopologyBuilder& builder, int node_index) {
  std::vector<VertexId> gpus;
  for (int gpu = 0; gpu < node.gpus; ++gpu) {
    gpus.push_back(graph.add_vertex(VertexKind::Gpu, node_index, gpu));
    graph.set_route_index(gpus.back(), std::int64_t{node_index} * node.gpus + gpu);
  }
  const std::vector<VertexId> hosts = add_host(graph, node, node_index);
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    graph.join(gpus[gpu], hosts[gpu], node.host_link_per_gpu, kPcieLatency, 1, LinkKind::Pcie);
  }
  const int groups = nic_groups(node);
  for (int nic = 0; nic < groups; ++nic) {
    const VertexId vertex = graph.add_vertex(VertexKind::Nic, node_index, nic);
    const auto host = static_cast<std::size_t>(std::int64_t{nic} * node.gpus / groups);
    graph.join(vertex, hosts[host % hosts.size()], node.host_link_per_gpu, kPcieLatency,
               nic_width(node), LinkKind::Pcie);
  }
  builder.build_node(graph, node, node_index, gpus);
}

// GPUs take the order of the NIC nearest to them, so that the leaves see them in NIC order.
void order_gpus(Graph& graph, const Node& node, int num_nodes) {
  const int groups = nic_groups(node);
  for (int n = 0; n < num_nodes && groups > 0; ++n) {
    for (int gpu = 0; gpu < node.gpus; ++gpu) {
      const std::int64_t nic = std::int64_t{gpu} * groups / node.gpus;
      const std::int64_t first = (nic * node.gpus + groups - 1) / groups;
      const std::int64_t sharing = std::max(1, (node.gpus + groups - 1) / groups);
      const VertexId vertex =
          graph.nics()[static_cast<std::size_t>(std::int64_t{n} * groups + nic)];
      const std::int64_t order = graph.vertices()[vertex].route_index * sharing + (gpu - first);
      graph.set_route_index(
          graph.gpus()[static_cast<std::size_t>(std::int64_t{n} * node.gpus + gpu)], order);
    }
  }
}

}  // namespace

std::string to_text(VertexKind kind) { return kVertexNames[static_cast<std::size_t>(kind)]; }
std::string to_text(LinkKind kind) { return kLinkNames[static_cast<std::size_t>(kind)]; }

VertexId Graph::add_vertex(VertexKind kind, int node, int index) {
  if (static_cast<std::int64_t>(vertices_.size()) >= limits::kMaxLinks) {
    bad_input("cluster", "the graph has too many vertices",
              fmt::format("at most {}", limits::kMaxLinks));
  }
  const auto id = static_cast<VertexId>(vertices_.size());
  vertices_.push_back({kind, node, index, 0});
  outgoing_.emplace_back();
  if (kind == VertexKind::Gpu) {
    gpus_.push_back(id);
  } else if (kind == VertexKind::Nic) {
    nics_.push_back(id);
  }
  return id;
}

void Graph::join(VertexId a, VertexId b, BytesPerSecond bandwidth_each, Seconds latency,
                 int parallel, LinkKind kind) {
  const VertexId fewer = outgoing_[a].size() <= outgoing_[b].size() ? a : b;
  const VertexId other = fewer == a ? b : a;
  for (const LinkId id : outgoing_[fewer]) {
    if (links_[id].to == other && links_[id].kind == kind) {
      for (const LinkId side : {id, id ^ 1U}) {
        links_[side].bandwidth += bandwidth_each * static_cast<double>(parallel);
        links_[side].parallel += parallel;
      }
      return;
    }
  }
  if (static_cast<std::int64_t>(links_.size()) + 2 > limits::kMaxLinks) {
    bad_input("cluster", "the graph has too many links",
              fmt::format("at most {}", limits::kMaxLinks));
  }
  const BytesPerSecond bandwidth = bandwidth_each * static_cast<double>(parallel);
  outgoing_[a].push_back(static_cast<LinkId>(links_.size()));
  links_.push_back({a, b, bandwidth, latency, parallel, kind});
  outgoing_[b].push_back(static_cast<LinkId>(links_.size()));
  links_.push_back({b, a, bandwidth, latency, parallel, kind});
}

std::string Graph::name(VertexId vertex) const {
  const Vertex& v = vertices_[vertex];
  if (v.node < 0) {
    return fmt::format("{} {}", to_text(v.kind), v.index);
  }
  return fmt::format("node {} {} {}", v.node, to_text(v.kind), v.index);
}

std::int64_t Graph::count(VertexKind kind) const {
  return std::count_if(vertices_.begin(), vertices_.end(),
                       [&](const Vertex& vertex) { return vertex.kind == kind; });
}

std::int64_t Graph::count_cables(VertexKind a, VertexKind b) const {
  std::int64_t cables = 0;
  for (std::size_t i = 0; i < links_.size(); i += 2) {
    const VertexKind from = vertices_[links_[i].from].kind;
    const VertexKind to = vertices_[links_[i].to].kind;
    if ((from == a && to == b) || (from == b && to == a)) {
      cables += links_[i].parallel;
    }
  }
  return cables;
}

int nic_width(const Node& node) {
  const int nics = node.scale_out.nics;
  return nics > node.gpus && nics % node.gpus == 0 ? nics / node.gpus : 1;
}

int nic_groups(const Node& node) { return node.scale_out.nics / nic_width(node); }

const TopologyBuilder& find_builder(std::string_view name, BuilderKind kind) {
  std::vector<std::string> names;
  for (const TopologyBuilder* builder : builder_table()) {
    if (builder->kind != kind) {
      continue;
    }
    if (builder->name == name) {
      return *builder;
    }
    names.emplace_back(builder->name);
  }
  bad_input("builder", fmt::format("unknown topology builder \"{}\"", printable(name)),
            nearest_hint(name, names));
}

Graph build_graph(const Cluster& cluster) {
  Graph graph;
  const TopologyBuilder& inside = find_builder(cluster.node.scale_up.builder, BuilderKind::Node);
  for (int node = 0; node < cluster.num_nodes; ++node) {
    add_node(graph, cluster.node, inside, node);
  }
  if (cluster.num_nodes > 1) {
    find_builder(cluster.fabric.builder, BuilderKind::Fabric).build_fabric(graph, cluster);
    order_gpus(graph, cluster.node, cluster.num_nodes);
  }
  return graph;
}

}  // namespace orrery::topologies
