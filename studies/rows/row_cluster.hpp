// SPDX-License-Identifier: Apache-2.0
// The cluster of a measurement: the node that it names or the usual one of its GPU, with the
// network that the row states, cut to the GPUs used when they are fewer than a node.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

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
  int tp = 1;
  int cp = 1;
};
// Or why there is no such cluster.
tl::expected<topologies::Cluster, std::string> make_cluster(const ClusterRequest& request);
tl::expected<topologies::Cluster, std::string> row_cluster(const Measurement& row);

// The GPU of the node that the row names beside a GPU of which it states only the model: "A100" on
// a p4d has 40 GB. "" where there is none or the cell says more.
std::string gpu_of_stated_node(const Measurement& row);

// What of the row's cluster is not as the row states it, in words: GPUs that do not fill their
// nodes (in NVLink domains jobs usually do not, and there is no cluster where less than half of
// each node would be in use), and a network between nodes of which the row states no rate.
std::vector<std::string> cluster_notes(const Measurement& row);

}  // namespace orrery::studies
