// SPDX-License-Identifier: Apache-2.0
// A cluster as its levels: the network between nodes, the adapters of a node, the links between its
// GPUs, the GPUs and their host, with what each carries in one direction.
#pragma once

#include <string>
#include <vector>

#include "topologies/cluster.hpp"

namespace orrery::studies {

// One below the other: the pools of a mixed cluster, or the one cluster there is.
std::string cluster_svg(const std::string& name, const std::vector<topologies::Cluster>& pools);

}  // namespace orrery::studies
