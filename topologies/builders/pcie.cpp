// SPDX-License-Identifier: Apache-2.0
// No scale-up links: GPUs reach each other through the PCIe tree and the sockets only.
#include "topologies/builder.hpp"

namespace orrery::topologies {
namespace {

void build(Graph&, const Node&, int, std::span<const VertexId>) {}

}  // namespace

extern const TopologyBuilder builder_pcie;
const TopologyBuilder builder_pcie = {
    .name = "pcie",
    .kind = BuilderKind::Node,
    .summary = "GPUs on PCIe switches or root ports only",
    .wiring = Wiring::Host,
    .build_node = build,
};

}  // namespace orrery::topologies
