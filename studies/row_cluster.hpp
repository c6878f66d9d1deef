// SPDX-License-Identifier: Apache-2.0
// The cluster of a measurement: the usual node of its GPU, with the network that the row states,
// cut to the GPUs used when they are fewer than a node.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "studies/measurement.hpp"
#include "topologies/cluster.hpp"

namespace orrery::studies {

// The network adapters of a node as a text states them: "8x200Gb IB HDR", "800 Gb/s per node".
struct StatedNetwork {
  int nics = 0;           // 0: only the rate of the node is stated
  double gigabits = 0;    // of one adapter, or of the node
  int delay_ms = 0;       // added by the operator of the network: "delay 10ms"; 0: none stated
  std::string_view link;  // "ib", "roce", "efa" or "" when not stated
};
std::optional<StatedNetwork> parse_network(std::string_view text);

// The node that usually carries a GPU ("" when there is none).
std::string_view usual_node(std::string_view gpu_name);

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
