// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/messages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "sim/collective_time.hpp"
#include "topologies/summary.hpp"

namespace orrery::plan {
namespace {

using costmodel::GroupShape;
using sim::CommKind;
using topologies::Cluster;

// A choice: between NCCL's constants for networks (14 us at most a hop, src/graph/tuning.cc) and
// the milliseconds of the home networks that TPI-LLM runs on.
constexpr Seconds kSlowToStart{1e-4};
constexpr double kSumPasses = 3;  // two terms read, their sum written

std::string_view algorithm_of(CommKind kind, AllReduce all_reduce) {
  switch (kind) {
    case CommKind::AllReduce:
      return all_reduce == AllReduce::Star   ? "star-all-reduce"
             : all_reduce == AllReduce::Tree ? "two-level-all-reduce"
                                             : "ring-all-reduce";
    case CommKind::AllGather:
      return "ring-all-gather";
    case CommKind::ReduceScatter:
      return "ring-reduce-scatter";
    default:
      ORRERY_CHECK(kind == CommKind::AllToAll, "no collective of messages");
      return "direct-all-to-all";
  }
}

// Of a message between ranks of the group: a port is an adapter, which ranks of a node may share.
sim::CollectiveCosts costs_of(const Cluster& cluster, const GroupShape& group) {
  const topologies::Node& node = cluster.node;
  sim::CollectiveCosts costs;
  if (group.nodes == 1) {
    costs.latency = to_sim_time(node.scale_up.latency);
    costs.bandwidth = node.scale_up.bandwidth_per_gpu;
    return costs;
  }
  const topologies::ScaleOut& out = node.scale_out;
  if (out.nics <= 0) {
    bad_input(cluster.name, "a group of ranks spans nodes that no network joins",
              "give the node a scale_out with NICs, or keep the group inside one node");
  }
  int switches = 1;
  const int count = std::min(group.nodes, cluster.num_nodes);
  if (count > 1) {  // a degree that is only tried may need more nodes than there are
    const int stride = std::clamp(group.node_stride, 1, (cluster.num_nodes - 1) / (count - 1));
    switches = switches_within(cluster, {0, count, stride}, topologies::Traffic::AllToAll);
  }
  const double sharing = static_cast<double>(group.ranks_per_node) * group.groups_per_node;
  costs.latency = to_sim_time(network_latency(cluster, switches));
  costs.bandwidth =
      out.nic_bandwidth * (out.efficiency_fraction * std::min(1.0, out.nics / sharing));
  return costs;
}

}  // namespace

bool has_slow_links(const Cluster& cluster) {
  return cluster.num_nodes > 1 && network_latency(cluster, 1) >= kSlowToStart;
}

Seconds MessageLinks::collective(CommKind kind, Bytes bytes, const GroupShape& group) const {
  if (group.ranks <= 1 || bytes.value() <= 0) {
    return {};
  }
  if (kind == CommKind::AllReduce && all_reduce == AllReduce::Fastest) {
    Seconds least(std::numeric_limits<double>::infinity());
    for (const AllReduce one : {AllReduce::Star, AllReduce::Tree, AllReduce::Ring}) {
      least = std::min(least, MessageLinks{cluster, device, one}.collective(kind, bytes, group));
    }
    return least;
  }
  sim::CollectiveCosts costs = costs_of(cluster, group);
  costs.reduce = [this](ByteCount size) {
    return to_sim_time(device.memory_bound(Bytes(kSumPasses * size.bytes().value()),
                                           costmodel::MemoryKernel::Elementwise));
  };
  const auto& algorithm = sim::find_collective(algorithm_of(kind, all_reduce), "serving");
  const ByteCount size(static_cast<std::int64_t>(std::ceil(bytes.value())));
  return to_seconds(sim::collective_time(algorithm, group.ranks, size, costs).time);
}

Seconds MessageLinks::send(Bytes bytes, bool same_node, int senders) const {
  GroupShape pair;
  pair.ranks = 2;
  (same_node ? pair.ranks_per_node : pair.nodes) = 2;
  pair.groups_per_node = same_node ? 1 : senders;
  return to_seconds(costs_of(cluster, pair)
                        .message(ByteCount(static_cast<std::int64_t>(std::ceil(bytes.value())))));
}

}  // namespace orrery::plan
