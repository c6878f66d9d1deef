// SPDX-License-Identifier: Apache-2.0
#include "costmodel/collective_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "costmodel/collective_units.hpp"
#include "costmodel/mesh_rings.hpp"
#include "costmodel/network_connections.hpp"
#include "topologies/summary.hpp"

namespace orrery::costmodel {

namespace {

using sim::CommKind;
using topologies::Wiring;

// Share of the nominal rate of a link that NCCL counts on: 20 of 25 GB/s of an NVLink2 or 3.
constexpr double kMeshLinkFraction = 0.8;
// Two PCIe GPUs of one switch reach 20 of 31.5 and 38.6 of 63 GB/s (L40S, RTX PRO 6000 logs).
constexpr double kPcieFraction = 0.62;
constexpr int kNvlsChannels = 8;
// 8 channels of 40 (Hopper) or 80 GB/s (Blackwell) beside rings of 360 and 720 GB/s.
constexpr double kNvlsOverRing = 8.0 / 9.0;
// NIC to NIC time that NCCL's network hop already contains (InfiniBand).
constexpr double kIncludedNetworkLatency = 2.8;
constexpr int kMaxChannels = 64;

constexpr std::array<Algorithm, 6> kAlgorithms = {Algorithm::Ring,    Algorithm::Tree,
                                                  Algorithm::Nvls,    Algorithm::NvlsTree,
                                                  Algorithm::CollNet, Algorithm::Pat};
constexpr std::array<Protocol, 3> kProtocols = {Protocol::LowLatency, Protocol::LowLatency128,
                                                Protocol::Simple};

nccl::Generation generation_of(const topologies::Gpu& gpu) {
  if (gpu.compute_capability >= 10) {
    return nccl::Generation::Blackwell;
  }
  if (gpu.compute_capability >= 9) {
    return nccl::Generation::Hopper;
  }
  // GPUs without a compute capability run NCCL's descendants: counted as the middle generation.
  const bool old = gpu.compute_capability > 0 && gpu.compute_capability < 7.5;
  return old ? nccl::Generation::Volta : nccl::Generation::Ampere;
}

bool is_switched(const topologies::ScaleUp& up) {
  return up.wiring == Wiring::Crossbar || up.wiring == Wiring::RackCrossbar;
}

// GPUs of the node that this one is, or is a part of.
int gpus_of_whole(const topologies::Node& node) {
  return std::max(node.gpus, node.scale_up.nccl_gpus);
}

int gpus_per_socket(const topologies::Node& node) {
  return std::max(1, gpus_of_whole(node) / std::max(1, node.sockets));
}

// Bytes that protocol Simple takes beside the message's own.
double bytes_again(const nccl::Group& group, CommKind kind, Algorithm algorithm, Bytes size,
                   const CollectiveParameters& corrections) {
  const double under_way = nccl::bytes_under_way(group, kind, algorithm, size.value());
  return under_way > 0 ? under_way : corrections.half_size.value();
}

}  // namespace

std::string_view to_text(Algorithm algorithm) {
  constexpr std::array<std::string_view, 8> kNames = {"none",      "ring",     "tree", "nvls",
                                                      "nvls-tree", "coll-net", "pat",  "direct"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::string_view to_text(Protocol protocol) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "ll", "ll128", "simple"};
  return kNames[static_cast<std::size_t>(protocol)];
}

GroupShape make_group(int size, int stride, int per_node) {
  ORRERY_CHECK(size >= 1 && stride >= 1 && per_node >= 1, "group shape");
  GroupShape group;
  group.ranks = size;
  group.ranks_per_node = std::min(size, std::max(1, per_node / stride));
  group.nodes = (size + group.ranks_per_node - 1) / group.ranks_per_node;
  group.groups_per_node = std::max(1, per_node / group.ranks_per_node);
  group.node_stride = std::max(1, stride / per_node);
  group.gpu_stride = group.ranks_per_node > 1 ? stride : 1;
  return group;
}

CollectiveModel::CollectiveModel(const topologies::Cluster& cluster, const Profile& profile,
                                 int nccl)
    : cluster_(cluster), profile_(profile), nccl_(nccl) {
  const topologies::ScaleUp& up = cluster_.node.scale_up;
  node_.generation = generation_of(cluster_.gpu);
  node_.nvlink = up.wiring != Wiring::Host;
  node_.plain_tree = !is_switched(up);
  node_.low_latency_128 = node_.nvlink && cluster_.gpu.compute_capability >= 7;
  node_.nvls = up.in_switch_reduction && node_.generation >= nccl::Generation::Hopper;
  node_.nvls_channels = kNvlsChannels;
  node_.nvls_bandwidth = up.nccl_bandwidth.value() / kGiga * kNvlsOverRing;
  node_.coll_net = cluster_.node.scale_out.in_network_reduction;
  node_.amd_host = cluster_.node.cpu_vendor == "amd";
  node_.overhead = node_.amd_host ? 2 : 1;
  const topologies::ScaleOut& out = cluster_.node.scale_out;
  const double extra = out.latency.value() / kMicro - kIncludedNetworkLatency;
  const double declared = out.plugin_latency.value() / kMicro;
  node_.plugin_latency = declared > 0 ? declared : std::max(0.0, extra);
  nic_rate_ = nccl::quantised_nic_rate(node_.generation, out.nic_bandwidth.value() / kGiga) *
              out.efficiency_fraction;
  node_.intra_latency = up.latency.value() / kMicro - nccl::usual_intra_latency(node_.nvlink);
  network_ = fabric_class(out);
  across_ = declared > 0 ? profile_.inter_node_plugin : profile_.inter_node;
  if (network_ == FabricClass::Tcp) {
    // Of slow networks it would be a latency that sockets do not show (docs/costmodel.md).
    across_.half_size = Bytes(0);
  }
  for (const FabricParameters& own : profile_.collectives.fabrics) {
    across_ = own.fabric == network_ ? own.parameters : across_;
  }
  lay_rings();
}

// What a ring over the first n GPUs of a node moves, and over how many channels.
void CollectiveModel::lay_rings() {
  const topologies::ScaleUp& up = cluster_.node.scale_up;
  const int gpus = std::max(1, cluster_.node.gpus);
  const double all = up.nccl_bandwidth.value() / kGiga;
  const double link =
      up.links_per_gpu > 0 ? up.bandwidth_per_gpu.value() / kGiga / up.links_per_gpu : 0;
  const double by_host = kPcieFraction * cluster_.gpu.pcie_bandwidth.value() / kGiga;
  intra_.assign(static_cast<std::size_t>(gpus) + 1, all);
  intra_[0] = intra_[1] = 0;
  intra_channels_.assign(intra_.size(), std::max(1, up.nccl_channels));
  const int whole = gpus_of_whole(cluster_.node);
  for (int n = 2; n <= gpus && n < whole; ++n) {
    const auto at = static_cast<std::size_t>(n);
    double& ring = intra_[at];
    switch (up.wiring) {
      case Wiring::Crossbar:
      case Wiring::RackCrossbar:
        break;
      case Wiring::ListedPairs: {
        // RCCL has paths of its own, of which no log is known.
        const bool through_others = cluster_.gpu.vendor == "NVIDIA";
        const int channels = mesh_ring_channels(up.mesh, n, through_others);
        intra_channels_[at] = std::max(1, channels);
        // Without a ring the traffic goes through the host.
        ring = channels > 0 ? channels * link * kMeshLinkFraction : std::min(ring, by_host);
        break;
      }
      case Wiring::AllPairs:
        ring *= (n - 1.0) / (whole - 1.0);
        break;
      case Wiring::Host:
        if (n <= gpus_per_socket(cluster_.node)) {
          ring = std::max(ring, up.nccl_socket_bandwidth.value() / kGiga);
          ring = n == 2 ? std::max(ring, kPcieFraction * link) : ring;
        }
        break;
    }
  }
}

double CollectiveModel::intra_bandwidth(int ranks, int gpu_stride) const {
  auto at = std::min(static_cast<std::size_t>(std::max(0, ranks)), intra_.size() - 1);
  // Over PCIe spread groups cross the sockets as all GPUs of the node do.
  const int reach = (ranks - 1) * gpu_stride + 1;
  if (!node_.nvlink && ranks > 1 && reach > gpus_per_socket(cluster_.node)) {
    at = intra_.size() - 1;
  }
  return intra_[at];
}

// All groups of the shape are assumed busy at once; a shape that reaches beyond the cluster is
// taken as the widest that fits.
CollectiveModel::FabricUse CollectiveModel::computed_fabric_use(int nodes, int stride,
                                                                bool all_pairs) const {
  FabricUse use{nodes, stride, all_pairs};
  topologies::NodeGroup group{0, std::min(nodes, cluster_.num_nodes), 1};
  if (group.count < 2) {
    return use;
  }
  group.stride = std::clamp(stride, 1, (cluster_.num_nodes - 1) / (group.count - 1));
  const auto traffic = all_pairs ? topologies::Traffic::AllToAll : topologies::Traffic::Ring;
  const auto beyond_first = [&](double switches) {
    return (network_latency(cluster_, switches) - network_latency(cluster_, 1)).value() / kMicro;
  };
  use.share = uplink_share(cluster_, group, traffic);
  use.latency = beyond_first(all_pairs ? switches_within(cluster_, group, traffic)
                                       : ring_switches(cluster_, group));
  use.tree_latency = all_pairs ? 0 : beyond_first(tree_switches(cluster_, group));
  return use;
}

CollectiveModel::FabricUse CollectiveModel::fabric_use(int nodes, int stride,
                                                       bool all_pairs) const {
  for (const FabricUse& use : fabric_uses_) {
    if (use.nodes == nodes && use.stride == stride && use.all_pairs == all_pairs) {
      return use;
    }
  }
  FabricUse& use = fabric_uses_[oldest_use_];
  oldest_use_ = (oldest_use_ + 1) % fabric_uses_.size();
  use = computed_fabric_use(nodes, stride, all_pairs);
  return use;
}

double CollectiveModel::inter_bandwidth(const GroupShape& group) const {
  const topologies::ScaleOut& out = cluster_.node.scale_out;
  if (out.nics <= 0 || nic_rate_ <= 0) {
    bad_input(cluster_.name, "a group of ranks spans nodes that no network joins",
              "give the node a scale_out with NICs, or keep the group inside one node");
  }
  const double per_gpu = std::max(1.0, static_cast<double>(out.nics) / cluster_.node.gpus);
  return std::min(group.ranks_per_node * per_gpu * nic_rate_,
                  out.nics * nic_rate_ / std::max(1, group.groups_per_node));
}

nccl::Group CollectiveModel::nccl_group(const GroupShape& group) const {
  nccl::Group result = node_;
  result.ranks = group.ranks;
  result.nodes = group.nodes;
  result.per_node = group.ranks_per_node;
  const auto at = std::min(static_cast<std::size_t>(group.ranks_per_node), intra_.size() - 1);
  result.intra_bandwidth = intra_bandwidth(group.ranks_per_node, group.gpu_stride);
  result.intra_channels = intra_channels_[at];
  if (group.nodes > 1) {
    const topologies::ScaleOut& out = cluster_.node.scale_out;
    result.low_latency = out.low_latency;
    result.low_latency_128 = result.low_latency_128 && out.low_latency_128;
    const double nics = inter_bandwidth(group);
    const FabricUse fabric = fabric_use(group.nodes, group.node_stride, false);
    result.inter_bandwidth = nics * fabric.share;
    result.ring_network_latency = fabric.latency;
    result.tree_network_latency = fabric.tree_latency;
    const double adapter = nic_rate_ * rails_of_adapter(cluster_.node);
    result.inter_channels = std::clamp(static_cast<int>(nics / adapter + 0.5), 1, kMaxChannels);
  }
  return result;
}

Seconds CollectiveModel::ring_latency(const GroupShape& group) const {
  if (group.ranks <= 1) {
    return Seconds();
  }
  const CollectiveParameters& corrections = corrections_of(group);
  const nccl::Cost ring =
      nccl::cost(nccl_group(group), CommKind::AllGather, Algorithm::Ring, Protocol::Simple, 1.0);
  return corrections.base + Seconds(ring.latency * kMicro * corrections.simple_factor);
}

const CollectiveParameters& CollectiveModel::corrections_of(const GroupShape& group) const {
  return group.nodes == 1 ? profile_.intra_node : across_;
}

CollectiveChoice CollectiveModel::formula(CommKind kind, Bytes size, const GroupShape& group,
                                          const CollectiveParameters& corrections) const {
  if (group.ranks <= 1 || size.value() <= 0) {
    return {};
  }
  if (kind == CommKind::AllToAll) {
    return all_to_all(size, group);
  }
  ORRERY_CHECK(kind == CommKind::AllReduce || kind == CommKind::AllGather ||
                   kind == CommKind::ReduceScatter || kind == CommKind::Broadcast,
               "not a collective");
  const nccl::Group ranks = nccl_group(group);
  CollectiveChoice best;
  for (const Algorithm algorithm : kAlgorithms) {
    for (const Protocol protocol : kProtocols) {
      const nccl::Cost cost = nccl::cost(ranks, kind, algorithm, protocol, size.value());
      if (cost.bandwidth <= 0) {
        continue;
      }
      const bool simple = protocol == Protocol::Simple;
      const bool in_switch = algorithm == Algorithm::Nvls || algorithm == Algorithm::NvlsTree;
      const double bandwidth =
          cost.bandwidth * kGiga *
          (in_switch ? corrections.in_switch_factor : corrections.bandwidth_factor);
      const double sized = bandwidth * nccl::size_factor(kind, algorithm, protocol, size.value());
      const double factor = simple ? corrections.simple_factor : corrections.low_latency_factor;
      const double again = simple ? bytes_again(ranks, kind, algorithm, size, corrections) : 0;
      const Seconds time = corrections.base + Seconds(cost.latency * kMicro * factor) +
                           Seconds(size.value() / sized + again / bandwidth);
      if (best.algorithm == Algorithm::None || time < best.time) {
        best = {time, algorithm, protocol, 0};
      }
    }
  }
  if (best.algorithm == Algorithm::None) {
    bad_input(cluster_.name, "no NCCL algorithm can join this group",
              "check scale_up.nccl_bandwidth");
  }
  best.channels = nccl::channels_used(ranks, best.algorithm, best.protocol, size.value());
  return best;
}

// Rings move n - 1 of n parts; reductions in switches and between two nodes of a tree less.
double CollectiveModel::wire_time(CommKind kind, const GroupShape& group) const {
  const auto passed_on = [](double parts) { return (parts - 1) / parts; };
  const topologies::ScaleUp& up = cluster_.node.scale_up;
  const bool sums = kind == CommKind::AllReduce;
  double seconds = 0;
  if (group.ranks_per_node > 1) {
    const double link = std::max(up.bandwidth_per_gpu, up.nccl_bandwidth).value();
    const double local = kind == CommKind::AllToAll ? (group.ranks_per_node - 1.0) / group.ranks
                                                    : passed_on(group.ranks);
    seconds = (sums ? (node_.nvls ? 1 : 2 * passed_on(group.ranks_per_node)) : local) / link;
  }
  if (group.nodes > 1 && kind != CommKind::AllToAll) {
    const topologies::ScaleOut& out = cluster_.node.scale_out;
    const double network = out.nic_bandwidth.value() * std::max(1, out.nics);
    const double parts =
        sums ? (node_.coll_net ? 1 : 2 * passed_on(group.nodes)) : passed_on(group.ranks);
    seconds = std::max(seconds, parts / network);
    if (const double ring = connection_rates(cluster_.node, group.groups_per_node).ring; ring > 0) {
      seconds = std::max(seconds, (sums ? 2 : 1) * passed_on(group.ranks) / ring);
    }
  }
  return seconds;
}

const TimeTable& CollectiveModel::table_of(CommKind kind, const GroupShape& group) const {
  if (const TimeTable* known = tables_.find(kind, group)) {
    return *known;
  }
  std::array<double, TimeTable::kPoints> seconds{};
  profile_.collectives.residuals.fill(
      {group.nodes == 1 ? fabric_class(cluster_.node.scale_up) : network_, kind, nccl_,
       group.ranks_per_node, group.nodes},
      TimeTable::kFirst, 1.0 / TimeTable::kPerOctave, seconds);
  const double wire = wire_time(kind, group);
  for (int point = 0; point < TimeTable::kPoints; ++point) {
    double& value = seconds[static_cast<std::size_t>(point)];
    const Bytes size = TimeTable::size_of(point);
    value =
        std::max(formula(kind, size, group).time.value() * std::exp(value), wire * size.value());
  }
  return tables_.add(kind, group, TimeTable(seconds));
}

Seconds CollectiveModel::time(CommKind kind, Bytes size, const GroupShape& group) const {
  return group.ranks <= 1 || size.value() <= 0 ? Seconds(0) : table_of(kind, group).at(size);
}

CollectiveChoice CollectiveModel::choose(CommKind kind, Bytes size, const GroupShape& group) const {
  if (kind == CommKind::SendReceive) {
    return group.ranks <= 1 || size.value() <= 0
               ? CollectiveChoice{}
               : CollectiveChoice{send_receive(size, group.nodes == 1, group.groups_per_node),
                                  Algorithm::Direct, Protocol::Simple, 1};
  }
  CollectiveChoice choice = formula(kind, size, group);
  choice.time = time(kind, size, group);
  return choice;
}

}  // namespace orrery::costmodel
