// SPDX-License-Identifier: Apache-2.0
// A cluster as its levels: the network between nodes, the adapters of a node, the links between its
// GPUs, the GPUs and their host, with what each carries in one direction; above the pools of a
// mixed cluster what joins them.
#pragma once

#include <string>
#include <vector>

#include "topologies/cluster.hpp"

namespace orrery::studies {

// One below the other: the pools of a mixed cluster, or the one cluster there is. `between`: what
// joins the pools, in lines of words.
std::string cluster_svg(const std::string& name, const std::vector<topologies::Cluster>& pools,
                        const std::vector<std::string>& between = {});

}  // namespace orrery::studies
