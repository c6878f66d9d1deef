// SPDX-License-Identifier: Apache-2.0
#include "costmodel/nccl.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace orrery::costmodel::nccl {

namespace {

using sim::CommKind;

constexpr int kNumProtocols = 3;
using PerProtocol = std::array<double, kNumProtocols>;

std::size_t index(Protocol protocol) {
  return protocol == Protocol::LowLatency ? 0 : protocol == Protocol::LowLatency128 ? 1 : 2;
}

constexpr PerProtocol kTreeBase = {6.8, 14, 8.4};
constexpr PerProtocol kRingBase = {6.6, 14, 8.4};
// Rows: NVLink, PCIe, network.
constexpr std::array<PerProtocol, 3> kTreeHop = {
    {{0.6, 1.25, 4.0}, {1.0, 1.9, 4.0}, {5.0, 8.5, 14}}};
constexpr std::array<PerProtocol, 3> kRingHop = {
    {{0.6, 1.9, 3.4}, {1.0, 2.5, 5.7}, {2.7, 4.0, 14}}};
// Parallel aggregated trees, Simple alone: base, share of a network hop, each rank.
constexpr double kPatBase = 8;
constexpr double kPatHopShare = 1 / 3.5;
constexpr double kPatRank = 2.8;
constexpr double kPatBandwidth = 0.75;
constexpr double kCollNetIntraHop = 3.7;
constexpr double kCollNetGpuStep = 0.4;
constexpr double kCollNetNetwork = 31;
constexpr double kNvlsLatency = 25;
constexpr double kNvlsNetwork = 18;
constexpr double kNvlsTreeNetwork = 20.9;

// Caps in GB/s, rows by generation; columns 1, 2, 3 and more nodes. Those of LL go by the
// generation inside a node, by the maker of the CPUs between nodes.
constexpr std::array<double, 4> kLowLatencyMax = {39, 87.7, 141, 282};
constexpr std::array<double, 2> kLowLatencyMaxAmd = {22.5, 19};
constexpr std::array<double, 2> kLowLatencyMaxOthers = {39, 20.4};
constexpr std::array<double, 4> kRing128PerChannel = {20, 20, 36.7, 40};
constexpr std::array<std::array<double, 3>, 4> kTree128PerChannel = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr std::array<std::array<double, 3>, 4> kTreePerChannel = {
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr std::array<double, 2> kNvlsTreeHopper = {57.7, 45.5};
constexpr std::array<double, 2> kNvlsTreeBlackwell = {96, 80};

// Correction of tree bandwidth from 64 B, one entry a power of two; none beyond 256 MiB. NCCL
// applies it to NVLS trees on Blackwell, too, where their chunks explain what logs show.
constexpr int kSizeEntries = 23;
constexpr std::array<std::array<double, kSizeEntries>, kNumProtocols> kTreeBySize = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};

// Chunks of NVLS trees and PAT.
constexpr double kKibi = 1024;
// A loop of an NVLS tree goes up and down every level of the tree; stages overlap in part: logs
// show 1.0 to 1.5 loops on two nodes of H100, 3 to 4 on four. Read off those, no constant of NCCL's
// (docs/fidelity.md).
constexpr double kLoopsPerHop = 0.75;
constexpr double kStepBytes = 512 * kKibi;  // buffers of 4 MiB in 8 steps

constexpr std::array<double, 19> kSpeedsBefore = {48, 30, 28, 24, 20, 18,  15,  12,   10,  9,
                                                  7,  6,  5,  4,  3,  2.4, 1.2, 0.24, 0.12};
constexpr std::array<double, 17> kSpeedsHopper = {48, 45, 42, 40, 30,  24,  22,   20,  17.5,
                                                  15, 12, 6,  3,  2.4, 1.2, 0.24, 0.12};
constexpr std::array<double, 18> kSpeedsBlackwell = {96,   48, 45.1, 42, 40, 30,  24,  22,   20,
                                                     17.5, 15, 12,   6,  3,  2.4, 1.2, 0.24, 0.12};

std::size_t row(Generation generation) { return static_cast<std::size_t>(generation); }
std::size_t column(int nodes) { return nodes <= 1 ? 0 : nodes == 2 ? 1 : 2; }

int floor_log2(int value) {
  int log = 0;
  while (value > 1) {
    value /= 2;
    ++log;
  }
  return log;
}

// Ring or tree bandwidth before algorithm factors: inside a node, or limited by the NICs.
double link_bandwidth(const Group& group) {
  if (group.nodes == 1) {
    return group.intra_bandwidth;
  }
  return group.per_node == 1 ? group.inter_bandwidth
                             : std::min(group.intra_bandwidth, group.inter_bandwidth);
}

// Channels of rings. Between nodes fast ones are split in two (ncclTopoDupChannels). Trees have as
// many as rings (init.cc, treeGraph->maxChannels), and each carries its cap at most.
double channels(const Group& group) {
  if (group.nodes == 1) {
    return group.intra_channels;
  }
  const int found = group.inter_channels;
  const double speed = link_bandwidth(group) / found;
  const bool stays = group.generation >= Generation::Hopper && speed < 50 && found > 4;
  return speed >= 25 && !stays ? 2.0 * found : found;
}

// On two nodes the tuner counts what a tree moves inside them, for which the search allows up to
// twice the rate of the NICs: a byte crosses the network once up or once down.
double tree_bandwidth(const Group& group) {
  if (group.nodes != 2) {
    return link_bandwidth(group);
  }
  const double twice = 2 * group.inter_bandwidth;
  return group.per_node == 1 ? twice : std::min(group.intra_bandwidth, twice);
}

// n / steps of a ring: what turns bus bandwidth into algorithm bandwidth.
double ring_ratio(const Group& group, CommKind kind) {
  if (kind == CommKind::AllReduce) {
    return group.ranks / (2.0 * (group.ranks - 1));
  }
  return kind == CommKind::Broadcast ? 1.0 : group.ranks / (group.ranks - 1.0);
}

// Simple needs data and flag to arrive, one after the other.
int crossings(std::size_t protocol) { return protocol == 2 ? 2 : 1; }

double network_hop(const Group& group, const PerProtocol& constants, std::size_t protocol,
                   double beyond) {
  return constants[protocol] + (group.plugin_latency + beyond) * crossings(protocol);
}

double intra_hop(const Group& group, const std::array<PerProtocol, 3>& constants,
                 std::size_t protocol) {
  return constants[group.nvlink ? 0 : 1][protocol] + group.intra_latency * crossings(protocol);
}

double low_latency_cap(const Group& group) {
  if (group.nodes == 1) {
    return kLowLatencyMax[row(group.generation)];
  }
  return (group.amd_host ? kLowLatencyMaxAmd : kLowLatencyMaxOthers)[column(group.nodes) - 1];
}

// With one GPU a node nothing hides the network: the hop of a tree counts for all.
const PerProtocol& network_hop_of(const Group& group, const std::array<PerProtocol, 3>& constants) {
  return group.per_node == 1 ? kTreeHop[2] : constants[2];
}

Cost ring(const Group& group, CommKind kind, Protocol protocol, double bytes) {
  Cost result;
  double bus = link_bandwidth(group);
  if (protocol == Protocol::LowLatency) {
    bus = std::min(bus * 0.5, low_latency_cap(group));
  } else if (protocol == Protocol::LowLatency128) {
    bus = std::min(bus * 0.92, channels(group) * kRing128PerChannel[row(group.generation)]);
  }
  result.bandwidth = bus * ring_ratio(group, kind);

  const std::size_t p = index(protocol);
  const double across =
      network_hop(group, network_hop_of(group, kRingHop), p, group.ring_network_latency);
  double inside = intra_hop(group, kRingHop, p);
  result.latency = kRingBase[p];
  if (kind == CommKind::Broadcast) {
    // The NVSwitch rings are alike: one hop of pipelined chunks.
    result.latency += group.nodes > 1 ? across : inside;
    return result;
  }
  if (group.nodes > 1) {
    inside = std::max(inside, group.overhead * (p == 2 ? 3 : 1));
  }
  const double factor = kind == CommKind::AllReduce ? 2 : 1;
  const double steps = factor * (group.ranks - 1);
  const double network_steps = factor * (group.nodes - 1);
  result.latency += (steps - network_steps) * inside + network_steps * across;
  if (protocol == Protocol::Simple && group.nodes > 1 && kind == CommKind::AllReduce &&
      bytes >= 64.0 * channels(group) * group.ranks) {
    result.latency *= group.generation == Generation::Volta ? 1.9 : 1.4;
  }
  return result;
}

Cost tree(const Group& group, Protocol protocol) {
  const std::size_t p = index(protocol);
  const std::size_t c = column(group.nodes);
  Cost result;
  const double used = channels(group);
  double bus =
      std::min(tree_bandwidth(group) * 0.92, used * kTreePerChannel[row(group.generation)][c]);
  if (protocol == Protocol::LowLatency) {
    bus = std::min(bus / 3.8, low_latency_cap(group));
  } else if (protocol == Protocol::LowLatency128) {
    bus = std::min(bus * (group.nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0),
                   used * kTree128PerChannel[row(group.generation)][c]);
  }
  result.bandwidth = bus * (group.plain_tree ? 0.85 : 1.0) * 0.5;
  result.latency =
      kTreeBase[p] + 2 * ((group.per_node - 1) * intra_hop(group, kTreeHop, p) +
                          floor_log2(group.nodes) *
                              network_hop(group, kTreeHop[2], p, group.tree_network_latency));
  return result;
}

double network_latency(const Group& group) {
  return group.plugin_latency + group.tree_network_latency;
}

// Into the switch for the reduction and out of it for the result.
double nvls_latency(const Group& group) { return kNvlsLatency + 2 * group.intra_latency; }

double nvls_efficiency(const Group& group) {
  return group.generation == Generation::Blackwell ? 0.74 : 0.85;
}

Cost nvls(const Group& group, CommKind kind) {
  Cost result;
  const bool across = group.nodes > 1;
  if (!group.nvls || group.per_node < 3 || kind == CommKind::Broadcast ||
      (across && !group.coll_net)) {
    return result;
  }
  const double gpus = group.per_node;
  double bus = group.nvls_bandwidth * nvls_efficiency(group) * (group.nvls_channels - 1) /
               group.nvls_channels * (kind == CommKind::AllReduce ? 2.0 : (gpus - 1) / gpus);
  if (across) {
    bus = std::min(bus, group.inter_bandwidth);
  }
  result.bandwidth = bus * ring_ratio(group, kind);
  result.latency = nvls_latency(group) + (across ? kNvlsNetwork + network_latency(group) : 0);
  return result;
}

Cost nvls_tree(const Group& group, CommKind kind) {
  Cost result;
  if (!group.nvls || group.nodes < 2 || group.per_node < 3 || kind != CommKind::AllReduce) {
    return result;
  }
  const bool pair = group.nodes <= 2;
  const auto& caps =
      group.generation == Generation::Blackwell ? kNvlsTreeBlackwell : kNvlsTreeHopper;
  const double inside = group.nvls_bandwidth * nvls_efficiency(group) * (group.nvls_channels - 1) /
                        group.nvls_channels * 2;
  const double network = group.inter_bandwidth * (pair ? 2 : 1);
  const double cap = caps[pair ? 0 : 1] * group.nvls_channels;
  result.bandwidth = std::min({inside, network, cap}) * ring_ratio(group, kind);
  result.latency = nvls_latency(group) +
                   2 * floor_log2(group.nodes) * (kNvlsTreeNetwork + network_latency(group));
  return result;
}

// CollNet direct: every GPU reduces a share with the network's help.
Cost coll_net(const Group& group, CommKind kind) {
  Cost result;
  if (!group.coll_net || group.nodes < 2 || kind != CommKind::AllReduce) {
    return result;
  }
  const double load = group.per_node / channels(group);
  const double share = std::max(1.0, load - (load - 1) / 2);
  result.bandwidth =
      link_bandwidth(group) / share * (group.generation >= Generation::Hopper ? 0.85 : 1.0) * 0.5;
  result.latency = 2 * (std::min(1, group.per_node - 1) * kCollNetIntraHop +
                        (group.per_node - 1) * kCollNetGpuStep) +
                   kCollNetNetwork + network_latency(group);
  return result;
}

// One GPU a node: gathers and scatters along trees that share their messages.
Cost pat(const Group& group, CommKind kind) {
  Cost result;
  if (group.per_node != 1 || group.nodes < 2 ||
      (kind != CommKind::AllGather && kind != CommKind::ReduceScatter)) {
    return result;
  }
  const double hop = network_hop(group, kTreeHop[2], 2, group.ring_network_latency);
  result.bandwidth = (group.nodes == 2 ? 2 : 1) * group.inter_bandwidth * kPatBandwidth;
  result.latency = kPatBase + floor_log2(group.nodes) * hop * kPatHopShare + kPatRank * group.ranks;
  return result;
}

// 1 beyond the table.
double interpolated(const std::array<double, kSizeEntries>& table, double bytes) {
  const double position = std::log2(std::max(bytes, 64.0) / 64.0);
  if (position >= kSizeEntries) {
    return 1;
  }
  const int low = static_cast<int>(position);
  const double part = position - low;
  const auto at = static_cast<std::size_t>(low);
  const double next = low + 1 < kSizeEntries ? table[at + 1] : 1.0;
  return table[at] + part * (next - table[at]);
}

// A channel passes a chunk of every head (GPU of the node) at a time.
double nvls_tree_loop(const Group& group, double bytes) {
  const double used = channels_used(group, Algorithm::NvlsTree, Protocol::Simple, bytes);
  const double per_head = bytes / (used * group.per_node);
  double chunk = (group.nodes >= 4 ? 64 : 128) * kKibi;
  chunk = per_head < 4 * chunk ? std::min(chunk, 64 * kKibi) : chunk;
  chunk = per_head < chunk ? std::min(chunk, 32 * kKibi) : chunk;
  return std::min(bytes, used * group.per_node * chunk);
}

double pat_loop(const Group& group, CommKind kind, double bytes) {
  const double used = 2 * channels(group);
  const double chunks = kind == CommKind::AllGather ? 32 : 16;
  double chunk = kStepBytes;
  while (chunk * used * chunks > bytes && chunk > 64 * kKibi) {
    chunk /= 2;
  }
  return std::min(bytes, used * chunk);
}

}  // namespace

double usual_intra_latency(bool nvlink) { return kRingHop[nvlink ? 0 : 1][0]; }

Cost cost(const Group& group, CommKind kind, Algorithm algorithm, Protocol protocol, double bytes) {
  if ((protocol == Protocol::LowLatency && !group.low_latency) ||
      (protocol == Protocol::LowLatency128 && !group.low_latency_128)) {
    return {};
  }
  switch (algorithm) {
    case Algorithm::Ring:
      return ring(group, kind, protocol, bytes);
    case Algorithm::Tree:
      return kind == CommKind::AllReduce ? tree(group, protocol) : Cost{};
    case Algorithm::Nvls:
      return protocol == Protocol::Simple ? nvls(group, kind) : Cost{};
    case Algorithm::NvlsTree:
      return protocol == Protocol::Simple ? nvls_tree(group, kind) : Cost{};
    case Algorithm::CollNet:
      return protocol == Protocol::Simple ? coll_net(group, kind) : Cost{};
    case Algorithm::Pat:
      return protocol == Protocol::Simple ? pat(group, kind) : Cost{};
    case Algorithm::None:
    case Algorithm::Direct:
      break;
  }
  return {};
}

double size_factor(CommKind kind, Algorithm algorithm, Protocol protocol, double bytes) {
  return kind == CommKind::AllReduce && algorithm == Algorithm::Tree
             ? interpolated(kTreeBySize[index(protocol)], bytes)
             : 1.0;
}

double bytes_under_way(const Group& group, CommKind kind, Algorithm algorithm, double bytes) {
  if (algorithm == Algorithm::NvlsTree) {
    return kLoopsPerHop * 2 * floor_log2(group.nodes) * nvls_tree_loop(group, bytes);
  }
  return algorithm == Algorithm::Pat ? pat_loop(group, kind, bytes) : 0.0;
}

int channels_used(const Group& group, Algorithm algorithm, Protocol protocol, double bytes) {
  if (algorithm == Algorithm::Nvls || algorithm == Algorithm::NvlsTree) {
    return group.generation == Generation::Blackwell ? 24 : 16;
  }
  const int available = 2 * std::max(1, static_cast<int>(channels(group)));
  const bool simple = protocol == Protocol::Simple;
  double threads = protocol == Protocol::LowLatency128 ? 640 : 512;
  double per_thread = simple ? 64 : 8;
  if (algorithm == Algorithm::Ring && protocol == Protocol::LowLatency) {
    per_thread *= group.ranks;
  }
  return std::clamp(static_cast<int>(std::min(bytes / (threads * per_thread), 1e6)), 1, available);
}

double quantised_nic_rate(Generation generation, double rate) {
  const std::span<const double> speeds =
      generation == Generation::Blackwell ? std::span<const double>(kSpeedsBlackwell)
      : generation == Generation::Hopper  ? std::span<const double>(kSpeedsHopper)
                                          : std::span<const double>(kSpeedsBefore);
  double best = 0;
  const auto try_channels = [&](double count) {
    // Tolerance: a rate that is a list entry after unit conversion counts as that entry.
    const auto fits = [&](double speed) { return speed <= rate / count * (1 + 1e-12); };
    const auto speed = std::find_if(speeds.begin(), speeds.end(), fits);
    if (speed != speeds.end()) {
      best = std::max(best, *speed * count);
    }
  };
  for (const double count : {1.0, 2.0, 4.0, std::floor(rate / speeds.front())}) {
    if (count >= 1) {
      try_channels(count);
    }
  }
  return best > 0 ? best : rate;
}

}  // namespace orrery::costmodel::nccl
