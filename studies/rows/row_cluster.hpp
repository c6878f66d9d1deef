// SPDX-License-Identifier: Apache-2.0
// The cluster of a measurement: the node that it names or the usual one of its GPU, with the
// network that the row states, cut to the GPUs used when they are fewer than a node.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "studies/rows/measurement.hpp"
#include "topologies/cluster.hpp"

namespace orrery::studies {

// The GPU that a row's words name, by its model or its node, or a relative ("" when there is none).
std::string stated_gpu(const std::string& text);

// The node that usually carries a GPU ("" when there is none).
std::string usual_node(const std::string& gpu_name);

struct ClusterRequest {
  std::string gpu;  // in any words
  int gpus = 0;
  int gpus_per_node = 0;   // 0: a full node
  std::string intra_node;  // free text
  std::string inter_node;  // free text
};
// Or why there is no such cluster.
tl::expected<topologies::Cluster, std::string> make_cluster(const ClusterRequest& request);
tl::expected<topologies::Cluster, std::string> row_cluster(const Measurement& row);

// How a row's GPUs lie on several nodes that they do not fill ("" where they fill them, and in
// NVLink domains, where jobs usually do not). There is no cluster where less than half of each
// would be in use.
std::string nodes_in_part(const Measurement& row);

}  // namespace orrery::studies
