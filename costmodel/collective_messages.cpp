// SPDX-License-Identifier: Apache-2.0
// What ranks send each other message by message: all-to-alls and point-to-point.
#include <algorithm>

#include "costmodel/collective_model.hpp"
#include "costmodel/collective_units.hpp"
#include "costmodel/network_connections.hpp"

namespace orrery::costmodel {

CollectiveChoice CollectiveModel::all_to_all(Bytes size, const GroupShape& group) const {
  const double n = group.ranks;
  const double local = group.ranks_per_node;
  const AllToAllParameters& inside = profile_.all_to_all_intra;
  // A mesh or PCIe node carries no more between all pairs than its rings do.
  const double up = cluster_.node.scale_up.bandwidth_per_gpu.value() / kGiga;
  const bool switched = !node_.plain_tree;
  double rate = inside.bandwidth_fraction * up;
  if (!switched) {
    rate = std::min(rate, std::max(intra_bandwidth(group.ranks_per_node, group.gpu_stride), 1e-9));
  }
  const double inside_time = local > 1 ? size.value() * (local - 1) / n / (rate * kGiga) : 0;
  if (group.nodes == 1) {
    const Seconds time = with_link(inside.base) + (n - 1) * inside.per_peer + Seconds(inside_time);
    return {time, Algorithm::Direct, Protocol::Simple, 1};
  }
  const AllToAllParameters& across = profile_.all_to_all_inter;
  const FabricUse fabric = fabric_use(group.nodes, group.node_stride, true);
  const double nics = inter_bandwidth(group) * across.bandwidth_fraction * fabric.share;
  const double across_time = size.value() * local * (n - local) / n / (nics * kGiga);
  const Seconds latency = across.base + Seconds((node_.plugin_latency + fabric.latency) * kMicro);
  const Seconds time =
      latency + (n - 1) * across.per_peer + Seconds(std::max(inside_time, across_time));
  return {time, Algorithm::Direct, Protocol::Simple, 1};
}

Seconds CollectiveModel::with_link(Seconds latency) const {
  return std::max(Seconds(0), latency + Seconds(node_.intra_latency * kMicro));
}

Seconds CollectiveModel::send_receive(Bytes size, bool same_node, int senders,
                                      int node_stride) const {
  if (size.value() <= 0) {
    return Seconds(0);
  }
  const SendReceiveParameters& fit = profile_.send_receive;
  if (same_node) {
    // On a mesh or over PCIe one peer has a share of the links.
    const double up = cluster_.node.scale_up.bandwidth_per_gpu.value();
    const double rate =
        node_.plain_tree ? std::min(intra_bandwidth(2, 1) * kGiga, up) : up * fit.intra_fraction;
    return with_link(fit.intra_latency) + Seconds(size.value() / rate);
  }
  GroupShape pair;
  pair.ranks = pair.nodes = 2;
  const int nics = std::max(1, cluster_.node.scale_out.nics);
  const int sharing = std::max(1, (senders + nics - 1) / nics);  // messages of the busiest NIC
  const FabricUse fabric = fabric_use(2, node_stride, false);
  const double share = inter_bandwidth(pair) * fabric.share * kGiga * fit.nic_fraction / sharing;
  const double connection = connection_rates(cluster_.node, 1).peer;
  const double limit =
      connection > 0 ? std::min(connection, fit.peer_limit.value()) : fit.peer_limit.value();
  return fit.inter_latency + Seconds((node_.plugin_latency + fabric.latency) * kMicro) +
         Seconds(size.value() / std::min(share, limit));
}

}  // namespace orrery::costmodel
