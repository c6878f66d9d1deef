// SPDX-License-Identifier: Apache-2.0
#include "topologies/summary.hpp"

#include <gtest/gtest.h>

#include "topologies/graph.hpp"

namespace orrery::topologies {
namespace {

TEST(Summary, SwitchesFollowUnitsAndPods) {
  const Cluster cluster = load_cluster("superpod-a100");
  EXPECT_EQ(switches_between(cluster, 5, 5), 0);
  EXPECT_EQ(switches_between(cluster, 0, 19), 1);
  EXPECT_EQ(switches_between(cluster, 0, 20), 3);
  const Cluster meta = load_cluster("meta-24k-roce");
  EXPECT_EQ(switches_between(meta, 0, 1), 1);
  EXPECT_EQ(switches_between(meta, 0, 383), 3);
  EXPECT_EQ(switches_between(meta, 0, 384), 5);
}

TEST(Summary, LatencyGrowsByOneSwitchTimeEach) {
  const Cluster cluster = load_cluster("superpod-a100");
  EXPECT_EQ(network_latency(cluster, 0), Seconds(0));
  EXPECT_NEAR(network_latency(cluster, 1).value(), 2.8e-6, 1e-12);
  EXPECT_NEAR(network_latency(cluster, 3).value(), 3.7e-6, 1e-12);
}

TEST(Summary, NonBlockingFabricsShareNothing) {
  const Cluster cluster = load_cluster("superpod-a100");
  for (const Traffic traffic : {Traffic::Ring, Traffic::AllToAll}) {
    EXPECT_EQ(uplink_share(cluster, {0, 140, 1}, traffic), 1.0);
    EXPECT_EQ(uplink_share(cluster, {0, 1, 1}, traffic), 1.0);
  }
}

TEST(Summary, OversubscriptionHurtsWhatCrosses) {
  const Cluster cluster = load_cluster(
      "hgx-h100:64",
      {"fabric.builder=fat-tree", "fabric.nodes_per_leaf=4", "fabric.oversubscription=4"});
  // Below one leaf nothing is shared.
  EXPECT_EQ(uplink_share(cluster, {0, 4, 1}, Traffic::AllToAll), 1.0);
  // A ring of consecutive nodes crosses once for four members; of one node a leaf, always.
  EXPECT_EQ(uplink_share(cluster, {0, 16, 1}, Traffic::Ring), 1.0);
  EXPECT_EQ(uplink_share(cluster, {0, 16, 4}, Traffic::Ring), 0.25);
  EXPECT_EQ(uplink_share(cluster, {0, 8, 2}, Traffic::Ring), 0.5);
  // All-to-all over 16: 12 of 15 messages cross.
  EXPECT_NEAR(uplink_share(cluster, {0, 16, 1}, Traffic::AllToAll), 0.25 * 15 / 12, 1e-12);
}

TEST(Summary, PodsOfTheMetaClusterAreSevenToOne) {
  const Cluster cluster = load_cluster("meta-24k-roce");
  EXPECT_EQ(uplink_share(cluster, {0, 384, 1}, Traffic::AllToAll), 1.0);
  EXPECT_EQ(uplink_share(cluster, {0, 8, 384}, Traffic::Ring), 1.0 / 7);
  EXPECT_EQ(uplink_share(cluster, {0, 3072, 1}, Traffic::Ring), 1.0);
}

// Hosts of one NIC.
Cluster hosts_on(const std::vector<std::string>& fabric) {
  std::vector<std::string> set = {"node.gpus=1", "node.scale_out.nics=1",
                                  "node.scale_up.builder=pcie", "node.host.sockets=1"};
  set.insert(set.end(), fabric.begin(), fabric.end());
  return load_cluster("hgx-h100", set);
}

// What a group keeps where `up` cables leave blocks that hold `members` of it and `nics` in all.
double kept(const NodeGroup& group, int members, double up, double nics, Traffic traffic) {
  const double crossing =
      traffic == Traffic::Ring ? 1.0 / members : (group.count - members) / (group.count - 1.0);
  return std::min(1.0, up / nics / crossing);
}

TEST(Summary, EveryLayerKeepsWhatItsCablesCarry) {
  constexpr int kHosts = 192;  // 3 pods of 8 leaves of 8
  for (const int leaf : {1, 2, 4}) {
    for (const int core : {1, 2}) {
      const Cluster cluster =
          hosts_on({"nodes=192", "fabric.builder=fat-tree", "fabric.radix=16",
                    "fabric.nodes_per_leaf=8", "fabric.leaves_per_pod=8", "fabric.levels=3",
                    "fabric.oversubscription=" + std::to_string(leaf),
                    "fabric.core_oversubscription=" + std::to_string(core)});
      const Graph graph = build_graph(cluster);
      const auto leaf_up =
          static_cast<double>(graph.count_cables(VertexKind::Leaf, VertexKind::Spine));
      const auto pod_up =
          static_cast<double>(graph.count_cables(VertexKind::Spine, VertexKind::Core));
      EXPECT_EQ(pod_up * core, leaf_up);
      for (const Traffic traffic : {Traffic::Ring, Traffic::AllToAll}) {
        for (const int stride : {1, 2, 8}) {
          const NodeGroup group{0, kHosts / stride, stride};
          EXPECT_NEAR(uplink_share(cluster, group, traffic),
                      std::min(kept(group, 8 / stride, leaf_up, kHosts, traffic),
                               kept(group, 64 / stride, pod_up, kHosts, traffic)),
                      1e-12)
              << leaf << ":" << core << ", every " << stride;
        }
      }
    }
  }
}

TEST(Summary, GroupsOfADragonflyKeepTheirGlobalLinks) {
  constexpr int kHosts = 96;  // 3 groups of 4 routers of 8
  const Cluster cluster =
      hosts_on({"nodes=96", "fabric.builder=dragonfly", "fabric.dimensions=[4,2,8]"});
  const double local = 3 * (4 * 3 / 2);  // cables; both ends of each leave a router
  const double all =
      static_cast<double>(build_graph(cluster).count_cables(VertexKind::Leaf, VertexKind::Leaf));
  for (const Traffic traffic : {Traffic::Ring, Traffic::AllToAll}) {
    const NodeGroup group{0, kHosts, 1};
    EXPECT_NEAR(uplink_share(cluster, group, traffic),
                std::min(kept(group, 8, 2 * all, kHosts, traffic),
                         kept(group, 32, 2 * (all - local), kHosts, traffic)),
                1e-12);
  }
  // In the only group there is nothing that its global links could carry.
  const Cluster one =
      hosts_on({"nodes=32", "fabric.builder=dragonfly", "fabric.dimensions=[4,2,8]"});
  EXPECT_EQ(uplink_share(one, {0, 4, 8}, Traffic::Ring), 3.0 / 8);
  EXPECT_EQ(uplink_share(one, {0, 2, 20}, Traffic::Ring), 3.0 / 8);
}

// Cables are whole, shares are not: a what-if on the ratio moves by as much as it says.
TEST(Summary, OversubscriptionIsNotRoundedToCables) {
  double before = 1;
  for (const double ratio : {1.5, 2.0, 2.2, 3.0, 5.0, 7.0, 16.0, 1024.0}) {
    const Cluster cluster = load_cluster(
        "hgx-h100:8",
        {"fabric.nodes_per_leaf=2", "fabric.oversubscription=" + std::to_string(ratio)});
    const double share = uplink_share(cluster, {0, 8, 1}, Traffic::AllToAll);
    EXPECT_NEAR(share, 1 / ratio * 7 / 6, 1e-12);
    EXPECT_LT(share, before);
    before = share;
  }
}

TEST(Summary, WithinAGroup) {
  const Cluster cluster = load_cluster("meta-24k-roce");
  EXPECT_EQ(switches_within(cluster, {0, 1, 1}, Traffic::Ring), 0);
  EXPECT_EQ(switches_within(cluster, {0, 2, 1}, Traffic::Ring), 1);
  EXPECT_EQ(switches_within(cluster, {0, 4, 1}, Traffic::AllToAll), 3);
  EXPECT_EQ(switches_within(cluster, {0, 8, 384}, Traffic::Ring), 5);
}

Cluster torus(const std::string& nodes, const std::string& dimensions) {
  return load_cluster("hgx-h100:" + nodes,
                      {"fabric.builder=torus", "fabric.dimensions=" + dimensions});
}

TEST(Summary, NeighbouringRingsKeepTheLinksOfATorus) {
  for (const Cluster& cluster : {torus("128", "[128]"), torus("128", "[4,4,8]")}) {
    EXPECT_EQ(uplink_share(cluster, {0, 128, 1}, Traffic::Ring), 1.0);
    EXPECT_EQ(uplink_share(cluster, {0, 8, 1}, Traffic::Ring), 1.0);
  }
  // Along another dimension every column has its own links; two apart in one dimension they share.
  EXPECT_EQ(uplink_share(torus("128", "[4,4,8]"), {0, 8, 16}, Traffic::Ring), 1.0);
  EXPECT_EQ(uplink_share(torus("128", "[128]"), {0, 8, 16}, Traffic::Ring), 1.0 / 16);
  EXPECT_EQ(uplink_share(torus("128", "[4,4,8]"), {0, 4, 32}, Traffic::Ring), 0.5);
}

TEST(Summary, AllToAllIsBoundByTheBisectionOfATorus) {
  // Half of what 64 nodes send crosses to the other half over two links.
  EXPECT_NEAR(uplink_share(torus("128", "[128]"), {0, 128, 1}, Traffic::AllToAll),
              2 / (64 * 64 / 127.0), 1e-12);
  // Eight in a line have one link in the middle.
  EXPECT_NEAR(uplink_share(torus("128", "[128]"), {0, 8, 1}, Traffic::AllToAll), 1 / (4 * 4 / 7.0),
              1e-12);
  EXPECT_EQ(uplink_share(torus("64", "[4,4,4]"), {0, 64, 1}, Traffic::AllToAll), 1.0);
  EXPECT_GT(uplink_share(torus("128", "[4,4,8]"), {0, 128, 1}, Traffic::AllToAll),
            uplink_share(torus("128", "[16,8]"), {0, 128, 1}, Traffic::AllToAll));
}

TEST(Summary, MeanSwitchesWeighTheHops) {
  const Cluster meta = load_cluster("meta-24k-roce");  // two nodes a leaf, 384 a pod
  EXPECT_EQ(ring_switches(meta, {0, 1, 1}), 0);
  EXPECT_EQ(ring_switches(meta, {0, 2, 1}), 1);
  EXPECT_EQ(ring_switches(meta, {0, 64, 1}), 2);  // every other hop leaves the leaf
  EXPECT_EQ(ring_switches(meta, {0, 64, 2}), 3);
  EXPECT_EQ(ring_switches(meta, {0, 8, 384}), 5);
  EXPECT_NEAR(ring_switches(meta, {0, 3072, 1}), 2 + 2.0 / 384, 1e-12);
  EXPECT_EQ(tree_switches(meta, {0, 4, 1}), 2);
  EXPECT_EQ(ring_switches(torus("128", "[4,4,8]"), {0, 128, 1}), 2);
  EXPECT_EQ(tree_switches(torus("8", "[8]"), {0, 8, 1}), (2 + 3 + 5) / 3.0);
}

// Constant time: a million-GPU cluster costs nothing.
TEST(Summary, LargestClusters) {
  const Cluster cluster =
      load_cluster("hgx-h100:131072", {"fabric.radix=512", "fabric.nodes_per_leaf=256"});
  EXPECT_EQ(cluster.num_gpus(), 1 << 20);
  EXPECT_EQ(uplink_share(cluster, {0, 131072, 1}, Traffic::Ring), 1.0);
  EXPECT_EQ(switches_within(cluster, {0, 131072, 1}, Traffic::AllToAll), 5);
}

}  // namespace
}  // namespace orrery::topologies
