// SPDX-License-Identifier: Apache-2.0
// Every registered builder: named as its file, complete for its kind, and it connects a cluster.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topologies/builder.hpp"
#include "topologies/routing.hpp"
#include "topologies/summary.hpp"

namespace orrery::topologies {
namespace {

TEST(Builders, TheTableHoldsThoseOfTheSpecification) {
  std::set<std::string_view> names;
  for (const TopologyBuilder* builder : builder_table()) {
    EXPECT_TRUE(names.insert(builder->name).second) << builder->name;
    EXPECT_TRUE(is_kebab_case(builder->name));
    EXPECT_FALSE(builder->summary.empty());
  }
  for (const char* name : {"cube-mesh", "full-mesh", "nvl-domain", "nvswitch", "pcie", "dragonfly",
                           "fat-tree", "rail-optimised", "single-switch", "torus"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_THROW(find_builder("fat-tree", BuilderKind::Node), Error);
  EXPECT_THROW(find_builder("", BuilderKind::Fabric), Error);
}

TEST(Builders, AreCompleteForTheirKind) {
  for (const TopologyBuilder* builder : builder_table()) {
    const bool is_node = builder->kind == BuilderKind::Node;
    EXPECT_EQ(builder->build_node != nullptr, is_node) << builder->name;
    EXPECT_EQ(builder->build_fabric != nullptr, !is_node) << builder->name;
    EXPECT_EQ(builder->scale != nullptr, !is_node) << builder->name;
    EXPECT_EQ(builder->switches_between != nullptr, !is_node) << builder->name;
  }
}

TEST(Builders, EveryFabricConnectsAllPairsAndEveryLinkIsUsable) {
  for (const TopologyBuilder* builder : builder_table()) {
    if (builder->kind != BuilderKind::Fabric) {
      continue;
    }
    const Cluster cluster = load_cluster(
        "dgx-a100:8",
        {"fabric.builder=" + std::string(builder->name), "fabric.nodes_per_leaf=2",
         builder->name == "torus" ? "fabric.dimensions=[2,2,2]" : "fabric.dimensions=[8,4,8]"});
    const Graph graph = build_graph(cluster);
    Router router(graph);
    for (const VertexId from : graph.gpus()) {
      for (const VertexId to : graph.gpus()) {
        EXPECT_TRUE(router.find(from, to).has_value());
      }
    }
    for (int node = 1; node < cluster.num_nodes; ++node) {
      EXPECT_GE(switches_between(cluster, 0, node), 1) << builder->name;
    }
  }
}

class NodeRoutes : public testing::TestWithParam<std::string> {};

TEST_P(NodeRoutes, AllPairsOfTwoNodesAreConnected) {
  const Graph graph = build_graph(load_cluster(GetParam() + ":2"));
  Router router(graph);
  for (std::size_t a = 0; a < graph.gpus().size(); a += 3) {
    for (const VertexId to : graph.gpus()) {
      EXPECT_TRUE(router.find(graph.gpus()[a], to).has_value());
    }
  }
}

std::string name_of_node(const testing::TestParamInfo<std::string>& node) {
  std::string name = node.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, NodeRoutes, testing::ValuesIn(node_names()), name_of_node);

}  // namespace
}  // namespace orrery::topologies
