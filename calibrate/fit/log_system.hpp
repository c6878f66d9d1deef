// SPDX-License-Identifier: Apache-2.0
// The simulated cluster and group that stand for the machine a collective was measured on: the node
// type with the network that the log states, and the ranks laid out as the log says. Trays of one
// NVLink domain count as one node.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "costmodel/group_shape.hpp"
#include "topologies/cluster.hpp"

namespace orrery::calibrate {

struct LogSetup {
  std::string gpu;          // name or alias in topologies/gpus
  std::string node;         // name in topologies/nodes; "" for the usual one of the GPU
  std::string fabric = {};  // the network in the log's words: "16x 100Gb/s RoCE (OCI BM.GPU.B4.8)"
  int nodes = 1;
  int ranks_per_node = 1;
  bool operator==(const LogSetup&) const = default;
};

struct LogSystem {
  topologies::Cluster cluster;
  costmodel::GroupShape group;
};

// Or why no simulated cluster stands for it.
tl::expected<LogSystem, std::string> log_system(const LogSetup& setup);

// 100 x major + minor of "2.29.2", "2.26.2+cuda12.8"; 0 when the text is no such version.
int nccl_version(std::string_view text);

}  // namespace orrery::calibrate
