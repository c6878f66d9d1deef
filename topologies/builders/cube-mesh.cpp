// SPDX-License-Identifier: Apache-2.0
// Direct links between pairs of GPUs as listed in scale_up.mesh (hybrid cube mesh, NVLink pairs,
// MI250X modules); pairs that are not listed go through PCIe and the sockets.
#include "topologies/builder.hpp"

namespace orrery::topologies {
namespace {

void build(Graph& graph, const Node& node, int, std::span<const VertexId> gpus) {
  const ScaleUp& up = node.scale_up;
  const BytesPerSecond link = up.bandwidth_per_gpu / static_cast<double>(up.links_per_gpu);
  for (const auto& [a, b, links] : up.mesh) {
    graph.join(gpus[static_cast<std::size_t>(a)], gpus[static_cast<std::size_t>(b)], link,
               up.latency, links, LinkKind::ScaleUp);
  }
}

}  // namespace

extern const TopologyBuilder builder_cube_mesh;
const TopologyBuilder builder_cube_mesh = {
    .name = "cube-mesh",
    .kind = BuilderKind::Node,
    .summary = "direct links between the listed pairs of GPUs",
    .wiring = Wiring::ListedPairs,
    .build_node = build,
};

}  // namespace orrery::topologies
