// SPDX-License-Identifier: Apache-2.0
// Routes: fewest links, balanced over equal paths (the reference times of flow-level
// simulations assume perfectly balanced routes), relays, hash, errors.
#include "topologies/routing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"

namespace orrery::topologies {
namespace {

Cluster hosts(int count, const std::vector<std::string>& set) {
  std::vector<std::string> all = {"node.gpus=1", "node.scale_out.nics=1",
                                  "node.scale_up.builder=pcie", "node.host.sockets=1",
                                  "nodes=" + std::to_string(count)};
  all.insert(all.end(), set.begin(), set.end());
  return load_cluster("hgx-h100", all);
}

// Messages on every link when each pair (a, b) chosen by the pattern sends one.
template <typename Pattern>
std::vector<int> loads(const Graph& graph, RoutingOptions options, Pattern pattern) {
  Router router(graph, options);
  std::vector<int> load(graph.links().size(), 0);
  const std::size_t n = graph.gpus().size();
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      if (a != b && pattern(a, b)) {
        for (const LinkId id : router.route(graph.gpus()[a], graph.gpus()[b]).links) {
          ++load[id];
        }
      }
    }
  }
  return load;
}

// Load over cables: the most loaded network link per kind of its ends.
double worst(const Graph& graph, const std::vector<int>& load, VertexKind from, VertexKind to) {
  double most = 0;
  for (std::size_t i = 0; i < load.size(); ++i) {
    const Link& link = graph.links()[i];
    if (graph.vertices()[link.from].kind == from && graph.vertices()[link.to].kind == to) {
      most = std::max(most, static_cast<double>(load[i]) / link.parallel);
    }
  }
  return most;
}

constexpr auto kAllToAll = [](std::size_t, std::size_t) { return true; };

// 16 hosts, 4 a leaf, 4 spines (radix 4) or 2 of them (2:1).
const std::vector<std::string> kFourSpines = {"fabric.builder=fat-tree", "fabric.radix=8",
                                              "fabric.spine_radix=4", "fabric.nodes_per_leaf=4",
                                              "fabric.levels=2"};

TEST(FatTreeRoutes, ShiftUsesEveryUplinkOnce) {
  const Graph graph = build_graph(hosts(16, kFourSpines));
  ASSERT_EQ(graph.count(VertexKind::Spine), 4);
  for (const std::size_t shift : {4U, 5U, 8U, 12U}) {
    const std::vector<int> load =
        loads(graph, {}, [&](std::size_t a, std::size_t b) { return (a + shift) % 16 == b; });
    EXPECT_EQ(worst(graph, load, VertexKind::Leaf, VertexKind::Spine), 1) << shift;
    EXPECT_EQ(worst(graph, load, VertexKind::Spine, VertexKind::Leaf), 1) << shift;
  }
}

TEST(FatTreeRoutes, AllToAllIsBalancedAndGivesTheReferenceTime) {
  std::vector<std::string> set = kFourSpines;
  set.push_back("fabric.oversubscription=2");
  const Graph graph = build_graph(hosts(16, set));
  ASSERT_EQ(graph.count(VertexKind::Spine), 2);
  const std::vector<int> load = loads(graph, {}, kAllToAll);
  const double up = worst(graph, load, VertexKind::Leaf, VertexKind::Spine);
  EXPECT_EQ(up, 4 * 12 / 2);
  EXPECT_EQ(worst(graph, load, VertexKind::Spine, VertexKind::Leaf), up);
  // 4 MiB a pair over 50e9 bytes/s: 2013.266 us, by hand.
  EXPECT_NEAR(up * 4 * 1048576 / 50e9 * 1e6, 2013.266, 0.001);
}

TEST(FatTreeRoutes, ThreeLevelsAreBalancedToo) {
  const Graph graph = build_graph(
      hosts(128, {"fabric.builder=fat-tree", "fabric.radix=8", "fabric.nodes_per_leaf=4"}));
  ASSERT_EQ(graph.count(VertexKind::Core), 16);
  const std::vector<int> all = loads(graph, {}, kAllToAll);
  EXPECT_EQ(worst(graph, all, VertexKind::Leaf, VertexKind::Spine), 4 * 124 / 4);
  EXPECT_EQ(worst(graph, all, VertexKind::Spine, VertexKind::Leaf), 4 * 124 / 4);
  EXPECT_EQ(worst(graph, all, VertexKind::Spine, VertexKind::Core), 16 * 112 / 16);
  EXPECT_EQ(worst(graph, all, VertexKind::Core, VertexKind::Spine), 16 * 112 / 16);
  for (const std::size_t shift : {4U, 16U, 64U, 68U}) {
    const std::vector<int> load =
        loads(graph, {}, [&](std::size_t a, std::size_t b) { return (a + shift) % 128 == b; });
    EXPECT_EQ(worst(graph, load, VertexKind::Leaf, VertexKind::Spine), 1) << shift;
    EXPECT_LE(worst(graph, load, VertexKind::Spine, VertexKind::Core), 1) << shift;
    EXPECT_LE(worst(graph, load, VertexKind::Core, VertexKind::Spine), 1) << shift;
  }
}

TEST(RailRoutes, EqualRanksOfAUnitAreOneSwitchApartAndLeavesAreBalanced) {
  const Cluster cluster = load_cluster("hgx-h100:8", {"fabric.nodes_per_leaf=4"});
  const Graph graph = build_graph(cluster);
  Router router(graph);
  EXPECT_EQ(router.route(graph.gpus()[3], graph.gpus()[8 + 3]).links.size(), 6U);
  EXPECT_GT(router.route(graph.gpus()[3], graph.gpus()[8 * 5 + 3]).links.size(), 6U);
  const std::vector<int> load = loads(graph, {}, [](std::size_t a, std::size_t b) {
    return (a + 32) % 64 == b;  // same rail, the other unit
  });
  EXPECT_EQ(worst(graph, load, VertexKind::Leaf, VertexKind::Spine), 1);
}

TEST(RailRoutes, WithoutSpinesGpusRelay) {
  const Graph graph = build_graph(load_cluster("hgx-h100:4", {"fabric.levels=1"}));
  EXPECT_EQ(graph.count(VertexKind::Spine), 0);
  Router router(graph);
  const Route cross = router.route(graph.gpus()[0], graph.gpus()[8 + 5]);
  bool relayed = false;
  for (std::size_t i = 0; i + 1 < cross.links.size(); ++i) {
    relayed = relayed || graph.vertices()[graph.links()[cross.links[i]].to].kind == VertexKind::Gpu;
  }
  EXPECT_TRUE(relayed);
}

TEST(Routes, LatencyAndBandwidthAreThoseOfTheLinks) {
  const Cluster cluster = load_cluster("dgx-a100:2");
  const Graph graph = build_graph(cluster);
  Router router(graph);
  const Route inside = router.route(graph.gpus()[0], graph.gpus()[1]);
  EXPECT_NEAR(inside.latency.value(), 0.6e-6, 1e-12);
  EXPECT_NEAR(inside.bandwidth.value(), 300e9, 1);
  const Route nics = router.route(graph.nics()[0], graph.nics()[8]);
  EXPECT_NEAR(nics.latency.value(), 2.8e-6, 1e-12);
  EXPECT_NEAR(nics.bandwidth.value(), 25e9, 1);
  const Route itself = router.route(graph.gpus()[0], graph.gpus()[0]);
  EXPECT_TRUE(itself.links.empty());
  EXPECT_EQ(itself.latency, Seconds(0));
}

// A shortest path weighted by bandwidth would prefer the detour.
TEST(Routes, FewestLinksEvenWhenNarrow) {
  Graph graph;
  const VertexId a = graph.add_vertex(VertexKind::Leaf, -1, 0);
  const VertexId b = graph.add_vertex(VertexKind::Leaf, -1, 1);
  const VertexId c = graph.add_vertex(VertexKind::Leaf, -1, 2);
  graph.join(a, b, BytesPerSecond(1e9), Seconds(1e-3), 1, LinkKind::Network);
  graph.join(a, c, BytesPerSecond(1e12), Seconds(1e-9), 1, LinkKind::Network);
  graph.join(c, b, BytesPerSecond(1e12), Seconds(1e-9), 1, LinkKind::Network);
  EXPECT_EQ(Router(graph).route(a, b).links.size(), 1U);
}

TEST(Routes, HashIsSeededAndReproducible) {
  const Graph graph = build_graph(hosts(16, kFourSpines));
  const auto spines = [&](std::uint64_t seed) {
    return loads(graph, {.hash = true, .seed = seed}, kAllToAll);
  };
  EXPECT_EQ(spines(1), spines(1));
  EXPECT_NE(spines(1), spines(2));
  EXPECT_GT(worst(graph, spines(1), VertexKind::Leaf, VertexKind::Spine), 12);  // not balanced
  const Cluster cluster = hosts(16, {"fabric.ecmp_hash=true", "fabric.ecmp_seed=7"});
  EXPECT_TRUE(routing_options(cluster.fabric).hash);
  EXPECT_EQ(routing_options(cluster.fabric).seed, 7U);
}

TEST(Routes, APairWithoutARouteIsNamed) {
  Graph graph;
  const VertexId a = graph.add_vertex(VertexKind::Gpu, 0, 3);
  const VertexId b = graph.add_vertex(VertexKind::Gpu, 7, 5);
  Router router(graph);
  EXPECT_FALSE(router.find(a, b).has_value());
  try {
    router.route(a, b);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("node 0 gpu 3"));
    EXPECT_THAT(error.what(), testing::HasSubstr("node 7 gpu 5"));
  }
}

TEST(Routes, ThousandHostsAllDistinctDestinations) {
  const Graph graph = build_graph(
      hosts(1024, {"fabric.builder=fat-tree", "fabric.radix=64", "fabric.nodes_per_leaf=32"}));
  Router router(graph);
  std::set<std::vector<LinkId>> routes;
  for (std::size_t b = 32; b < 64; ++b) {
    routes.insert(router.route(graph.gpus()[0], graph.gpus()[b]).links);
  }
  EXPECT_EQ(routes.size(), 32U);
}

}  // namespace
}  // namespace orrery::topologies
