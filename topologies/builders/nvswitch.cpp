// SPDX-License-Identifier: Apache-2.0
// NVSwitch boards: addresses are spread over all switches of a board, so they act as one crossbar
// vertex; `boards` crossbars (DGX-2 has two) share the GPUs and are joined by `board_links`.
#include <algorithm>

#include "topologies/builder.hpp"

namespace orrery::topologies {
namespace {

void build(Graph& graph, const Node& node, int node_index, std::span<const VertexId> gpus) {
  const ScaleUp& up = node.scale_up;
  const BytesPerSecond link = up.bandwidth_per_gpu / static_cast<double>(up.links_per_gpu);
  const Seconds half = up.latency / 2.0;
  std::vector<VertexId> boards;
  for (int board = 0; board < up.boards; ++board) {
    boards.push_back(graph.add_vertex(VertexKind::NvSwitch, node_index, board));
    for (std::size_t other = 0; other + 1 < boards.size(); ++other) {
      graph.join(boards[other], boards.back(), link, half, up.board_links, LinkKind::ScaleUp);
    }
  }
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    graph.join(gpus[gpu], boards[gpu * boards.size() / gpus.size()], link, half, up.links_per_gpu,
               LinkKind::ScaleUp);
  }
}

}  // namespace

extern const TopologyBuilder builder_nvswitch;
const TopologyBuilder builder_nvswitch = {
    .name = "nvswitch",
    .kind = BuilderKind::Node,
    .summary = "GPUs on one or more boards of NVSwitches",
    .wiring = Wiring::Crossbar,
    .build_node = build,
};

}  // namespace orrery::topologies
