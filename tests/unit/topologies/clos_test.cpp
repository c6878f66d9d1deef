// SPDX-License-Identifier: Apache-2.0
// Switch and cable counts of published clusters (DGX SuperPOD reference architectures) and
// of the port arithmetic of folded Clos networks.
#include "topologies/clos.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "topologies/builder.hpp"

namespace orrery::topologies {
namespace {

struct Counts {
  std::string cluster;
  int leaves;
  int spines;
  int cores;
};

class SuperPod : public testing::TestWithParam<Counts> {};

TEST_P(SuperPod, Switches) {
  const ClosShape shape = clos_shape(load_cluster(GetParam().cluster), true);
  EXPECT_EQ(shape.num_leaves(), GetParam().leaves);
  EXPECT_EQ(shape.num_spines(), GetParam().spines);
  EXPECT_EQ(shape.cores, GetParam().cores);
}

INSTANTIATE_TEST_SUITE_P(
    Published, SuperPod,
    testing::Values(Counts{"superpod-a100", 56, 80, 28}, Counts{"superpod-h100-31", 8, 4, 0},
                    Counts{"superpod-h100-63", 16, 8, 0}, Counts{"superpod-h100-95", 24, 16, 0},
                    Counts{"superpod-h100-127", 32, 16, 0}, Counts{"superpod-b200-64", 16, 8, 0},
                    Counts{"superpod-b200-128", 32, 16, 0}, Counts{"superpod-b200-256", 64, 32, 0},
                    Counts{"superpod-b200-512", 128, 128, 64},
                    Counts{"superpod-b200-1024", 256, 256, 128},
                    Counts{"superpod-b200-2048", 512, 512, 256},
                    Counts{"superpod-b300-72", 8, 4, 0}, Counts{"superpod-b300-144", 16, 8, 0},
                    Counts{"superpod-b300-288", 32, 18, 0}, Counts{"superpod-b300-576", 64, 36, 0},
                    Counts{"superpod-b300-1296", 144, 72, 0}));

TEST(SuperPodGraph, A100HasAsManyCablesInEveryLayer) {
  const Graph graph = build_graph(load_cluster("superpod-a100"));
  EXPECT_EQ(graph.count_cables(VertexKind::Nic, VertexKind::Leaf), 1120);
  EXPECT_EQ(graph.count_cables(VertexKind::Leaf, VertexKind::Spine), 1120);
  EXPECT_EQ(graph.count_cables(VertexKind::Spine, VertexKind::Core), 1120);
}

TEST(SuperPodGraph, H100LeafSpineCables) {
  const std::vector<std::pair<std::string, int>> published = {{"superpod-h100-31", 256},
                                                              {"superpod-h100-63", 512},
                                                              {"superpod-h100-95", 768},
                                                              {"superpod-h100-127", 1024}};
  for (const auto& [name, cables] : published) {
    const Graph graph = build_graph(load_cluster(name));
    EXPECT_EQ(graph.count_cables(VertexKind::Leaf, VertexKind::Spine), cables) << name;
  }
}

Cluster fat_tree_hosts(int count, const std::vector<std::string>& fabric) {
  std::vector<std::string> set = {
      "node.gpus=1",         "node.scale_out.nics=1",   "node.scale_up.builder=pcie",
      "node.host.sockets=1", "fabric.builder=fat-tree", "nodes=" + std::to_string(count)};
  set.insert(set.end(), fabric.begin(), fabric.end());
  return load_cluster("hgx-h100", set);
}

// No switch uses more ports than it has; returns the most used of a kind.
int most_ports(const Graph& graph, VertexKind kind) {
  int most = 0;
  for (VertexId v = 0; v < graph.vertices().size(); ++v) {
    if (graph.vertices()[v].kind != kind) {
      continue;
    }
    int ports = 0;
    for (const LinkId id : graph.links_from(v)) {
      ports += graph.links()[id].parallel;
    }
    most = std::max(most, ports);
  }
  return most;
}

TEST(FatTree, LargestNonBlockingTreesAreFull) {
  const Cluster two = fat_tree_hosts(8 * 8 / 2, {"fabric.radix=8", "fabric.nodes_per_leaf=4"});
  const Graph graph = build_graph(two);
  EXPECT_EQ(graph.count(VertexKind::Leaf), 8);
  EXPECT_EQ(graph.count(VertexKind::Spine), 4);
  EXPECT_EQ(graph.count(VertexKind::Core), 0);
  EXPECT_EQ(most_ports(graph, VertexKind::Leaf), 8);
  EXPECT_EQ(most_ports(graph, VertexKind::Spine), 8);
  const Graph three =
      build_graph(fat_tree_hosts(8 * 8 * 8 / 4, {"fabric.radix=8", "fabric.nodes_per_leaf=4"}));
  EXPECT_EQ(three.count(VertexKind::Leaf), 32);
  EXPECT_EQ(three.count(VertexKind::Spine), 32);
  EXPECT_EQ(three.count(VertexKind::Core), 16);
  EXPECT_EQ(most_ports(three, VertexKind::Core), 8);
  // One pod more than the cores have ports: they become modular.
  const Cluster beyond = fat_tree_hosts(129, {"fabric.radix=8", "fabric.nodes_per_leaf=4"});
  EXPECT_EQ(most_ports(build_graph(beyond), VertexKind::Core), 9);
  EXPECT_THROW(clos_shape(fat_tree_hosts(
                              33, {"fabric.radix=8", "fabric.nodes_per_leaf=4", "fabric.levels=2"}),
                          false),
               Error);
}

TEST(FatTree, NoSwitchHasMorePortsThanItsRadix) {
  for (const std::string& name : cluster_names()) {
    const Cluster cluster = load_cluster(name, {"nodes=48"});
    if (cluster.fabric.builder == "torus" || cluster.fabric.builder == "dragonfly") {
      continue;
    }
    const Graph graph = build_graph(cluster);
    const int spine =
        cluster.fabric.spine_radix > 0 ? cluster.fabric.spine_radix : cluster.fabric.radix;
    EXPECT_LE(most_ports(graph, VertexKind::Leaf), cluster.fabric.radix) << name;
    EXPECT_LE(most_ports(graph, VertexKind::Spine), spine) << name;
    EXPECT_LE(most_ports(graph, VertexKind::Core), spine) << name;
  }
}

TEST(FatTree, BisectionFollowsTheOversubscription) {
  for (const double ratio : {1.0, 2.0, 4.0}) {
    const Graph graph =
        build_graph(fat_tree_hosts(64, {"fabric.radix=32", "fabric.nodes_per_leaf=8",
                                        "fabric.oversubscription=" + std::to_string(ratio)}));
    // Half of the leaf uplinks joins one half of the hosts to the other.
    EXPECT_EQ(graph.count_cables(VertexKind::Leaf, VertexKind::Spine),
              static_cast<std::int64_t>(64 / ratio));
  }
}

TEST(FatTree, PlanesAreDisjointCopies) {
  const Graph graph = build_graph(load_cluster("deepseek-h800"));
  EXPECT_EQ(graph.count(VertexKind::Leaf), 8 * 8);
  EXPECT_EQ(graph.count_cables(VertexKind::Nic, VertexKind::Leaf), 2048);
  EXPECT_EQ(graph.count_cables(VertexKind::Leaf, VertexKind::Spine), 2048);
}

TEST(FatTree, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(clos_shape(fat_tree_hosts(64, {"fabric.radix=8", "fabric.nodes_per_leaf=9"}), false),
               Error);
  EXPECT_THROW(clos_shape(fat_tree_hosts(64, {"fabric.radix=8", "fabric.nodes_per_leaf=7"}), false),
               Error);
  EXPECT_THROW(clos_shape(fat_tree_hosts(64, {"fabric.planes=2"}), false), Error);
  EXPECT_THROW(clos_shape(fat_tree_hosts(64, {"fabric.levels=1", "fabric.radix=8"}), false), Error);
}

}  // namespace
}  // namespace orrery::topologies
