// SPDX-License-Identifier: Apache-2.0
// SLURM topology.conf (tree plug-in: SwitchName, Switches, Nodes, LinkSpeed; block plug-in:
// BlockName, Nodes, BlockSizes) as the leaves of a fat tree. Keys are case-insensitive, "#" begins
// a comment, a trailing backslash continues a line. Errors name the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/cluster.hpp"

namespace orrery::topologies {

struct SlurmTopology {
  std::vector<std::vector<std::string>> leaves;  // node names below each leaf switch or block
  int levels = 1;                                // of switches
  int leaves_per_pod = 0;                        // three levels: most leaves below one switch
  std::int64_t num_nodes() const;
};

SlurmTopology parse_slurm_topology(std::string_view text, std::string_view name);
// The cluster document of as many nodes as the file has, all of them like the nodes of `usual` and
// joined by a non-blocking fat tree with the file's leaves (it does not say how many cables there
// are); the latency of a switch is that of `usual`. Error for nodes without a network and for
// racks, whose servers are the hosts of the file `name`.
Json cluster_document_of_slurm(const SlurmTopology& topology, const Cluster& usual,
                               std::string_view name);

}  // namespace orrery::topologies
