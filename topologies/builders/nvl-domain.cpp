// SPDX-License-Identifier: Apache-2.0
// A rack-scale NVLink domain (NVL72): every GPU has links_per_gpu links, one to each switch ASIC
// (or evenly several), all trays form one crossbar.
#include "topologies/builder.hpp"

namespace orrery::topologies {
namespace {

void build(Graph& graph, const Node& node, int node_index, std::span<const VertexId> gpus) {
  const ScaleUp& up = node.scale_up;
  const BytesPerSecond link = up.bandwidth_per_gpu / static_cast<double>(up.links_per_gpu);
  const VertexId crossbar = graph.add_vertex(VertexKind::NvSwitch, node_index, 0);
  for (const VertexId gpu : gpus) {
    graph.join(gpu, crossbar, link, up.latency / 2.0, up.links_per_gpu, LinkKind::ScaleUp);
  }
}

}  // namespace

extern const TopologyBuilder builder_nvl_domain;
const TopologyBuilder builder_nvl_domain = {
    .name = "nvl-domain",
    .kind = BuilderKind::Node,
    .summary = "rack-scale NVLink domain, one crossbar",
    .wiring = Wiring::RackCrossbar,
    .build_node = build,
};

}  // namespace orrery::topologies
