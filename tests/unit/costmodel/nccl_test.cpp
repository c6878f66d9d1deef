// SPDX-License-Identifier: Apache-2.0
// NCCL's own numbers: what its formulas give on well-known nodes.
#include "costmodel/nccl.hpp"

#include <gtest/gtest.h>

namespace orrery::costmodel::nccl {
namespace {

using sim::CommKind;

constexpr double kLarge = 16.0 * 1024 * 1024 * 1024;

Group hgx(Generation generation, int nodes) {
  Group group;
  group.generation = generation;
  group.nodes = nodes;
  group.per_node = 8;
  group.ranks = 8 * nodes;
  const bool blackwell = generation == Generation::Blackwell;
  group.intra_channels = blackwell ? 16 : 12;
  group.intra_bandwidth = blackwell ? 720 : generation == Generation::Hopper ? 360 : 240;
  group.nvls = generation >= Generation::Hopper;
  group.nvls_channels = 8;
  group.nvls_bandwidth = blackwell ? 640 : 320;
  group.inter_channels = 8;
  group.inter_bandwidth = 8 * 48;
  group.overhead = 1;
  return group;
}

double bus(const Group& group, Algorithm algorithm, Protocol protocol) {
  const double n = group.ranks;
  return cost(group, CommKind::AllReduce, algorithm, protocol, kLarge).bandwidth * 2 * (n - 1) / n;
}

TEST(NcclTest, NvlsOnOneNodeGivesTheKnownBusBandwidth) {
  EXPECT_NEAR(bus(hgx(Generation::Hopper, 1), Algorithm::Nvls, Protocol::Simple), 476, 0.5);
  EXPECT_NEAR(bus(hgx(Generation::Blackwell, 1), Algorithm::Nvls, Protocol::Simple), 829, 0.5);
}

TEST(NcclTest, NvlsTreeBetweenNodes) {
  EXPECT_NEAR(bus(hgx(Generation::Hopper, 2), Algorithm::NvlsTree, Protocol::Simple), 461, 1);
  EXPECT_NEAR(bus(hgx(Generation::Hopper, 4), Algorithm::NvlsTree, Protocol::Simple), 364, 1);
  EXPECT_NEAR(bus(hgx(Generation::Hopper, 128), Algorithm::NvlsTree, Protocol::Simple), 364, 1);
}

TEST(NcclTest, RingBandwidthByProtocol) {
  const Group node = hgx(Generation::Ampere, 1);
  EXPECT_DOUBLE_EQ(bus(node, Algorithm::Ring, Protocol::Simple), 240);
  EXPECT_DOUBLE_EQ(bus(node, Algorithm::Ring, Protocol::LowLatency128), 240 * 0.92);
  EXPECT_DOUBLE_EQ(bus(node, Algorithm::Ring, Protocol::LowLatency), 87.7);
  Group few = node;
  few.intra_bandwidth = 100;
  EXPECT_DOUBLE_EQ(bus(few, Algorithm::Ring, Protocol::LowLatency), 50);
}

TEST(NcclTest, TreeBandwidthAndItsCaps) {
  const Group node = hgx(Generation::Ampere, 1);
  const auto tree = [&](const Group& group, Protocol protocol) {
    return cost(group, CommKind::AllReduce, Algorithm::Tree, protocol, kLarge).bandwidth;
  };
  EXPECT_DOUBLE_EQ(tree(node, Protocol::Simple), 240 * 0.92 / 2);
  EXPECT_DOUBLE_EQ(tree(node, Protocol::LowLatency), 240 * 0.92 / 3.8 / 2);
  EXPECT_DOUBLE_EQ(tree(node, Protocol::LowLatency128), 240 * 0.92 * 7 / 9 / 2);
  Group four = hgx(Generation::Ampere, 4);
  four.inter_bandwidth = 192;
  EXPECT_DOUBLE_EQ(tree(four, Protocol::Simple), 8 * 17.8 / 2);
  Group mesh = node;
  mesh.plain_tree = true;
  EXPECT_DOUBLE_EQ(tree(mesh, Protocol::Simple), 0.85 * 240 * 0.92 / 2);
}

// On two nodes a tree counts what it moves inside them, up to twice the rate of the NICs, over as
// many channels as rings have.
TEST(NcclTest, TreesOnTwoNodes) {
  const auto tree = [](const Group& group) {
    return cost(group, CommKind::AllReduce, Algorithm::Tree, Protocol::Simple, kLarge).bandwidth;
  };
  Group two = hgx(Generation::Ampere, 2);
  two.inter_bandwidth = 192;
  EXPECT_DOUBLE_EQ(tree(two), 8 * 23.6 / 2);
  two.inter_bandwidth = 96;
  EXPECT_DOUBLE_EQ(tree(two), 192 * 0.92 / 2);
  EXPECT_DOUBLE_EQ(tree(hgx(Generation::Hopper, 2)), 360 * 0.92 / 2);
  EXPECT_DOUBLE_EQ(tree(hgx(Generation::Blackwell, 2)), 8 * 42.8 / 2);
}

// Of the same 192 GB/s four and eight adapters leave A100 with rings, sixteen with trees: OCI's
// BM.GPU4.8 beside Azure's NDv4.
TEST(NcclTest, TheNumberOfAdaptersDecidesBetweenRingAndTree) {
  const auto tree_over_ring = [](int adapters, double each) {
    Group two = hgx(Generation::Ampere, 2);
    two.inter_channels = adapters;
    two.inter_bandwidth = adapters * each;
    return bus(two, Algorithm::Tree, Protocol::Simple) /
           bus(two, Algorithm::Ring, Protocol::Simple);
  };
  EXPECT_LT(tree_over_ring(4, 24), 1);
  EXPECT_LT(tree_over_ring(8, 24), 1);
  EXPECT_GT(tree_over_ring(16, 12), 1);
}

// A cap of 20 GB/s a channel tells how many there are.
TEST(NcclTest, FastChannelsAreSplit) {
  const auto capped = [](Generation generation, int adapters, double each) {
    Group two = hgx(generation, 2);
    two.inter_channels = adapters;
    two.intra_bandwidth = two.inter_bandwidth = adapters * each;
    return bus(two, Algorithm::Ring, Protocol::LowLatency128);
  };
  EXPECT_DOUBLE_EQ(capped(Generation::Ampere, 8, 24), 8 * 20);
  EXPECT_DOUBLE_EQ(capped(Generation::Ampere, 8, 48), 16 * 20);
  EXPECT_DOUBLE_EQ(capped(Generation::Hopper, 8, 48), 8 * 36.7);
  EXPECT_DOUBLE_EQ(capped(Generation::Hopper, 4, 48), 4 * 48 * 0.92);
}

TEST(NcclTest, LowLatencyBetweenNodesIsCappedByTheHost) {
  const auto ring = [](const Group& group) {
    return bus(group, Algorithm::Ring, Protocol::LowLatency);
  };
  Group two = hgx(Generation::Blackwell, 2);
  EXPECT_DOUBLE_EQ(ring(two), 39);
  two.amd_host = true;
  EXPECT_DOUBLE_EQ(ring(two), 22.5);
  Group three = hgx(Generation::Blackwell, 3);
  EXPECT_DOUBLE_EQ(ring(three), 20.4);
  three.amd_host = true;
  EXPECT_DOUBLE_EQ(ring(three), 19);
}

TEST(NcclTest, OneGpuANode) {
  Group group = hgx(Generation::Hopper, 4);
  group.per_node = 1;
  group.ranks = 4;
  group.inter_channels = 1;
  group.inter_bandwidth = 48;
  const Cost pat = cost(group, CommKind::AllGather, Algorithm::Pat, Protocol::Simple, 1024);
  EXPECT_DOUBLE_EQ(pat.latency, 8 + 2 * 14 / 3.5 + 4 * 2.8);
  EXPECT_DOUBLE_EQ(pat.bandwidth, 0.75 * 48);
  // Nothing hides the network: the hop of trees counts for rings as well.
  EXPECT_DOUBLE_EQ(
      cost(group, CommKind::AllGather, Algorithm::Ring, Protocol::LowLatency, 1024).latency,
      6.6 + 3 * 5.0);
  const auto available = [](const Group& ranks, CommKind kind) {
    return cost(ranks, kind, Algorithm::Pat, Protocol::Simple, 1024).bandwidth > 0;
  };
  EXPECT_FALSE(available(group, CommKind::AllReduce));
  EXPECT_FALSE(available(hgx(Generation::Hopper, 4), CommKind::AllGather));
}

TEST(NcclTest, Latencies) {
  const auto latency = [](const Group& group, CommKind kind, Algorithm algorithm, Protocol protocol,
                          double bytes) {
    return cost(group, kind, algorithm, protocol, bytes).latency;
  };
  const Group node = hgx(Generation::Ampere, 1);
  EXPECT_DOUBLE_EQ(latency(node, CommKind::AllReduce, Algorithm::Ring, Protocol::LowLatency, 1024),
                   6.6 + 14 * 0.6);
  EXPECT_DOUBLE_EQ(latency(node, CommKind::AllGather, Algorithm::Ring, Protocol::Simple, 1024),
                   8.4 + 7 * 3.4);
  EXPECT_DOUBLE_EQ(latency(node, CommKind::AllReduce, Algorithm::Tree, Protocol::LowLatency, 1024),
                   6.8 + 2 * 7 * 0.6);
  Group two = hgx(Generation::Ampere, 2);
  two.inter_bandwidth = 192;
  // 28 steps inside at the overhead floor of 1 us, 2 through the network.
  EXPECT_DOUBLE_EQ(latency(two, CommKind::AllReduce, Algorithm::Ring, Protocol::LowLatency, 1024),
                   6.6 + 28 * 1.0 + 2 * 2.7);
  EXPECT_DOUBLE_EQ(latency(two, CommKind::AllReduce, Algorithm::Tree, Protocol::Simple, 1024),
                   8.4 + 2 * (7 * 4.0 + 14));
  Group efa = two;
  efa.plugin_latency = 75;
  EXPECT_DOUBLE_EQ(latency(efa, CommKind::AllReduce, Algorithm::Tree, Protocol::Simple, 1024) -
                       latency(two, CommKind::AllReduce, Algorithm::Tree, Protocol::Simple, 1024),
                   2 * 2 * 75);
  const double small =
      latency(two, CommKind::AllReduce, Algorithm::Ring, Protocol::Simple, 64 * 8 * 16 - 1);
  EXPECT_DOUBLE_EQ(
      latency(two, CommKind::AllReduce, Algorithm::Ring, Protocol::Simple, 64 * 8 * 16),
      1.4 * small);
}

TEST(NcclTest, RingAllReduceIsReduceScatterPlusAllGather) {
  const Group node = hgx(Generation::Hopper, 2);
  const auto of = [&](CommKind kind) {
    return cost(node, kind, Algorithm::Ring, Protocol::LowLatency, 1024);
  };
  const Cost all = of(CommKind::AllReduce);
  const Cost half = of(CommKind::ReduceScatter);
  EXPECT_DOUBLE_EQ(1 / all.bandwidth, 2 / half.bandwidth);
  EXPECT_DOUBLE_EQ(all.latency - 6.6, 2 * (half.latency - 6.6));
  EXPECT_DOUBLE_EQ(of(CommKind::AllGather).latency, half.latency);
}

TEST(NcclTest, Availability) {
  const auto has = [](const Group& group, CommKind kind, Algorithm algorithm, Protocol protocol) {
    return cost(group, kind, algorithm, protocol, kLarge).bandwidth > 0;
  };
  const Group ampere = hgx(Generation::Ampere, 1);
  EXPECT_FALSE(has(ampere, CommKind::AllReduce, Algorithm::Nvls, Protocol::Simple));
  EXPECT_FALSE(has(ampere, CommKind::AllGather, Algorithm::Tree, Protocol::Simple));
  Group pair = hgx(Generation::Hopper, 1);
  pair.ranks = pair.per_node = 2;
  EXPECT_FALSE(has(pair, CommKind::AllReduce, Algorithm::Nvls, Protocol::Simple));
  const Group hopper = hgx(Generation::Hopper, 1);
  EXPECT_TRUE(has(hopper, CommKind::AllReduce, Algorithm::Nvls, Protocol::Simple));
  EXPECT_FALSE(has(hopper, CommKind::AllReduce, Algorithm::Nvls, Protocol::LowLatency));
  EXPECT_FALSE(has(hopper, CommKind::AllReduce, Algorithm::NvlsTree, Protocol::Simple));
  Group two = hgx(Generation::Hopper, 2);
  EXPECT_FALSE(has(two, CommKind::AllReduce, Algorithm::Nvls, Protocol::Simple));
  EXPECT_FALSE(has(two, CommKind::AllReduce, Algorithm::CollNet, Protocol::Simple));
  two.coll_net = true;
  EXPECT_TRUE(has(two, CommKind::AllReduce, Algorithm::Nvls, Protocol::Simple));
  EXPECT_TRUE(has(two, CommKind::AllReduce, Algorithm::CollNet, Protocol::Simple));
  two.low_latency_128 = false;
  EXPECT_FALSE(has(two, CommKind::AllReduce, Algorithm::Ring, Protocol::LowLatency128));
  EXPECT_TRUE(has(two, CommKind::AllReduce, Algorithm::Ring, Protocol::LowLatency));
  two.low_latency = false;
  EXPECT_FALSE(has(two, CommKind::AllReduce, Algorithm::Ring, Protocol::LowLatency));
}

TEST(NcclTest, SizeCorrectionEqualsTheTableAtPowersOfTwo) {
  const auto factor = [](Protocol protocol, double bytes) {
    return size_factor(CommKind::AllReduce, Algorithm::Tree, protocol, bytes);
  };
  EXPECT_DOUBLE_EQ(factor(Protocol::LowLatency, 512), 1);
  EXPECT_DOUBLE_EQ(factor(Protocol::LowLatency, 256 * 1024), 0.4);
  EXPECT_DOUBLE_EQ(factor(Protocol::LowLatency, 32 << 20), 1);
  EXPECT_DOUBLE_EQ(factor(Protocol::LowLatency128, 64 * 1024), 0.6);
  EXPECT_DOUBLE_EQ(factor(Protocol::Simple, 4096), 0.9);
  EXPECT_DOUBLE_EQ(factor(Protocol::Simple, 128 * 1024), 0.5);
  EXPECT_DOUBLE_EQ(factor(Protocol::Simple, 1 << 20), 0.5);
  EXPECT_DOUBLE_EQ(factor(Protocol::Simple, 256 << 20), 0.9);
  EXPECT_DOUBLE_EQ(factor(Protocol::Simple, 512 << 20), 1);
  for (const Algorithm other : {Algorithm::Ring, Algorithm::NvlsTree}) {
    EXPECT_DOUBLE_EQ(size_factor(CommKind::AllReduce, other, Protocol::Simple, 4096), 1);
  }
}

// NCCL 2.27, calcCollChunking: 16 channels (24 on Blackwell) of 8 heads pass chunks of 128 KiB from
// four of them each on, of 64 KiB from one on, of 32 KiB below; from four nodes on 64 KiB at most.
TEST(NcclTest, NvlsTreesHaveTheirChunksUnderWay) {
  const auto loops = [](const Group& group, double bytes, double loop) {
    return bytes_under_way(group, CommKind::AllReduce, Algorithm::NvlsTree, bytes) / loop;
  };
  const Group two = hgx(Generation::Hopper, 2);
  const double small = 16 * 8 * 32768.0;
  EXPECT_DOUBLE_EQ(loops(two, 64 << 20, 4 * small), 1.5);
  EXPECT_DOUBLE_EQ(loops(two, (64 << 20) - 1024, 2 * small), 1.5);
  EXPECT_DOUBLE_EQ(loops(two, 8 << 20, 2 * small), 1.5);
  EXPECT_DOUBLE_EQ(loops(two, (8 << 20) - 1024, small), 1.5);
  EXPECT_DOUBLE_EQ(loops(two, 1 << 20, 1 << 20), 1.5);
  EXPECT_DOUBLE_EQ(loops(hgx(Generation::Hopper, 4), 1 << 30, 2 * small), 3);
  EXPECT_DOUBLE_EQ(loops(hgx(Generation::Hopper, 3), 1 << 30, 4 * small), 1.5);
  EXPECT_DOUBLE_EQ(loops(hgx(Generation::Blackwell, 2), 64 << 20, 3 * small), 1.5);
  EXPECT_DOUBLE_EQ(loops(hgx(Generation::Blackwell, 2), 128 << 20, 6 * small), 1.5);
}

TEST(NcclTest, PatHasItsChunksUnderWayAndOthersNothing) {
  Group rails = hgx(Generation::Hopper, 8);
  rails.per_node = 1;
  rails.ranks = 8;
  rails.inter_channels = 1;
  rails.inter_bandwidth = 48;
  const auto pat = [&](CommKind kind, double bytes) {
    return bytes_under_way(rails, kind, Algorithm::Pat, bytes);
  };
  // One adapter's channel is split in two, each of two compute channels.
  EXPECT_DOUBLE_EQ(pat(CommKind::AllGather, 1024), 1024);
  EXPECT_DOUBLE_EQ(pat(CommKind::AllGather, 1 << 20), 4 * 65536);
  EXPECT_DOUBLE_EQ(pat(CommKind::AllGather, 64 << 20), 4 * 524288);
  EXPECT_DOUBLE_EQ(pat(CommKind::AllGather, 32 << 20), 4 * 262144);
  EXPECT_DOUBLE_EQ(pat(CommKind::ReduceScatter, 32 << 20), 4 * 524288);
  EXPECT_DOUBLE_EQ(bytes_under_way(rails, CommKind::AllGather, Algorithm::Ring, 64 << 20), 0);
}

TEST(NcclTest, NicRatesAsTheSearchLaysThemOut) {
  EXPECT_DOUBLE_EQ(quantised_nic_rate(Generation::Hopper, 50), 48);
  EXPECT_DOUBLE_EQ(quantised_nic_rate(Generation::Ampere, 25), 24);
  EXPECT_DOUBLE_EQ(quantised_nic_rate(Generation::Ampere, 12.5), 12);
  EXPECT_DOUBLE_EQ(quantised_nic_rate(Generation::Volta, 3.125), 3);
  EXPECT_DOUBLE_EQ(quantised_nic_rate(Generation::Blackwell, 100), 96);
  EXPECT_DOUBLE_EQ(quantised_nic_rate(Generation::Hopper, 1000), 20 * 48);
  EXPECT_DOUBLE_EQ(quantised_nic_rate(Generation::Hopper, 0.01), 0.01);
}

TEST(NcclTest, SmallMessagesUseFewChannels) {
  const Group node = hgx(Generation::Ampere, 1);
  EXPECT_EQ(channels_used(node, Algorithm::Ring, Protocol::Simple, 1024), 1);
  EXPECT_EQ(channels_used(node, Algorithm::Ring, Protocol::Simple, 4 * 512 * 64), 4);
  EXPECT_EQ(channels_used(node, Algorithm::Ring, Protocol::Simple, kLarge), 24);
  EXPECT_EQ(channels_used(node, Algorithm::Ring, Protocol::LowLatency, 4 * 512 * 8 * 8), 4);
  EXPECT_EQ(channels_used(hgx(Generation::Hopper, 1), Algorithm::Nvls, Protocol::Simple, kLarge),
            16);
}

}  // namespace
}  // namespace orrery::costmodel::nccl
