// SPDX-License-Identifier: Apache-2.0
// The cluster of a measurement: the usual node of its GPU, with the network that the row states,
// cut to the GPUs used when they are fewer than a node.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "studies/rows/measurement.hpp"
#include "topologies/cluster.hpp"

namespace orrery::studies {

// The node that usually carries a GPU ("" when there is none).
std::string usual_node(const std::string& gpu_name);

struct ClusterRequest {
  std::string gpu;  // any alias
  int gpus = 0;
  int gpus_per_node = 0;   // 0: a full node
  std::string inter_node;  // free text
};
// Or why there is no such cluster.
tl::expected<topologies::Cluster, std::string> make_cluster(const ClusterRequest& request);
tl::expected<topologies::Cluster, std::string> row_cluster(const Measurement& row);

}  // namespace orrery::studies
