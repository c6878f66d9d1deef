// SPDX-License-Identifier: Apache-2.0
// Every pair of GPUs is joined directly: the listed links, or the bandwidth of a GPU divided evenly
// over its peers.
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
  if (!up.mesh.empty() || gpus.size() < 2) {
    return;
  }
  const BytesPerSecond share = up.bandwidth_per_gpu / static_cast<double>(gpus.size() - 1);
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < gpus.size(); ++b) {
      graph.join(gpus[a], gpus[b], share, up.latency, 1, LinkKind::ScaleUp);
    }
  }
}

}  // namespace

extern const TopologyBuilder builder_full_mesh;
const TopologyBuilder builder_full_mesh = {
    .name = "full-mesh",
    .kind = BuilderKind::Node,
    .summary = "every pair of GPUs joined directly",
    .wiring = Wiring::AllPairs,
    .build_node = build,
};

}  // namespace orrery::topologies
