// SPDX-License-Identifier: Apache-2.0
// A cluster of several kinds of nodes: pools, each a cluster of one kind, and the network between
// them. Text is "hgx-h100:4+dgx-a100:4" or a document "orrery-mixed-cluster"
// (docs/topologies.md); a pool is called as its node unless the document names it. Bandwidths are
// per direction. Traffic between pools is as fast as the slower side's network, or as `between`
// says where that is slower. Pools may share their nodes: then GPUs of several kinds are in one
// machine and reach each other over its PCIe.
#pragma once

#include <string>
#include <vector>

#include "topologies/cluster.hpp"

namespace orrery::topologies {

struct Pool {
  std::string name;
  Cluster cluster;
};

struct MixedCluster {
  std::string name;  // "hgx-h100:4+dgx-a100:4"
  std::vector<Pool> pools;
  BytesPerSecond bandwidth_per_node;         // between pools, at most; 0: as the nodes' own
  Seconds latency;                           // between pools, at least
  std::vector<std::vector<int>> same_nodes;  // pools whose i-th nodes are one machine
  Json document;                             // self-contained
  int num_gpus() const;
  bool in_same_nodes(const std::vector<int>& of_pools) const;
};

inline constexpr int kMaxPools = 8;

// Whether the text names several kinds of nodes, or the document is one of them.
bool names_mixed_cluster(const std::string& text);
bool is_mixed_cluster(const Json& document);

// Overrides are "POOL.path=value", with the paths of a cluster (gpu.*, node.*, fabric.*, nodes).
MixedCluster load_mixed_cluster(const std::string& text,
                                const std::vector<std::string>& overrides = {});
MixedCluster read_mixed_cluster(const Json& document, const std::string& where);

// The network that a group over these pools sees, `gpus_per_node` of its GPUs on a node at most:
// nodes of the pool whose share of the network per GPU is smallest, and as many as all pools have.
// Of pools in the same nodes: those nodes, with the GPUs and NICs of all and the slowest PCIe.
Cluster network_across(const MixedCluster& cluster, const std::vector<int>& pools,
                       int gpus_per_node);

// Error for commands that take one kind of nodes.
[[noreturn]] void refuse_mixed_cluster(const std::string& where);

}  // namespace orrery::topologies
