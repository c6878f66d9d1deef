// SPDX-License-Identifier: Apache-2.0
// Link counts and bandwidths of the nodes as their makers state them, and of the other fabrics.
#include "topologies/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"
#include "topologies/routing.hpp"

namespace orrery::topologies {
namespace {

BytesPerSecond bandwidth_between(const Graph& graph, VertexKind a, VertexKind b) {
  BytesPerSecond sum;
  for (const Link& link : graph.links()) {
    if (graph.vertices()[link.from].kind == a && graph.vertices()[link.to].kind == b) {
      sum += link.bandwidth;
    }
  }
  return sum;
}

TEST(NodeGraph, Dgx2HasFortyEightLinksBetweenItsBoards) {
  const Graph graph = build_graph(load_cluster("dgx-2"));
  EXPECT_EQ(graph.count_cables(VertexKind::Gpu, VertexKind::NvSwitch), 16 * 6);
  EXPECT_EQ(graph.count_cables(VertexKind::NvSwitch, VertexKind::NvSwitch), 48);
  // 2.4 TB/s both ways together (the sum counts each way once).
  EXPECT_NEAR(bandwidth_between(graph, VertexKind::NvSwitch, VertexKind::NvSwitch).value(), 2.4e12,
              1);
}

TEST(NodeGraph, Nvl72IsOneCrossbarOf1296Links) {
  const Graph graph = build_graph(load_cluster("gb200-nvl72"));
  EXPECT_EQ(graph.count_cables(VertexKind::Gpu, VertexKind::NvSwitch), 1296);
  // 130 TB/s both ways.
  EXPECT_NEAR(2 * bandwidth_between(graph, VertexKind::Gpu, VertexKind::NvSwitch).value(), 129.6e12,
              1);
}

TEST(NodeGraph, DgxA100AndHgxH100) {
  EXPECT_EQ(
      build_graph(load_cluster("dgx-a100")).count_cables(VertexKind::Gpu, VertexKind::NvSwitch),
      72 + 24);
  const Graph graph = build_graph(load_cluster("hgx-h100"));
  EXPECT_EQ(graph.count_cables(VertexKind::Gpu, VertexKind::NvSwitch), 8 * 18);
  EXPECT_NEAR(bandwidth_between(graph, VertexKind::Gpu, VertexKind::NvSwitch).value(), 3.6e12, 1);
  EXPECT_EQ(graph.count(VertexKind::PcieSwitch), 8);
}

TEST(NodeGraph, EveryGpuOfTheCubeMeshHasSixLinks) {
  const Graph graph = build_graph(load_cluster("dgx-1v"));
  EXPECT_EQ(graph.count_cables(VertexKind::Gpu, VertexKind::Gpu), 8 * 6 / 2);
  for (const VertexId gpu : graph.gpus()) {
    int links = 0;
    for (const LinkId id : graph.links_from(gpu)) {
      links += graph.links()[id].kind == LinkKind::ScaleUp ? graph.links()[id].parallel : 0;
    }
    EXPECT_EQ(links, 6) << graph.name(gpu);
  }
  EXPECT_EQ(graph.count(VertexKind::PcieSwitch), 4);
}

TEST(NodeGraph, CubeMeshPairsWithoutALinkCrossTheCpus) {
  const Graph graph = build_graph(load_cluster("dgx-1v"));
  Router router(graph);
  const auto route = [&](std::size_t a, std::size_t b) {
    return router.route(graph.gpus()[a], graph.gpus()[b]);
  };
  EXPECT_EQ(route(0, 3).links.size(), 1U);
  EXPECT_NEAR(route(0, 3).bandwidth.value(), 50e9, 1);
  EXPECT_NEAR(route(0, 1).bandwidth.value(), 25e9, 1);
  const Route across = route(0, 7);
  bool crosses_sockets = false;
  for (const LinkId id : across.links) {
    crosses_sockets = crosses_sockets || graph.links()[id].kind == LinkKind::Socket;
  }
  EXPECT_TRUE(crosses_sockets);
  EXPECT_NEAR(across.bandwidth.value(), 6e9, 1);
}

TEST(NodeGraph, NicsOfOneGpuAreOnePipe) {
  const Graph graph = build_graph(load_cluster("p5:2"));
  EXPECT_EQ(graph.nics().size(), 16U);
  EXPECT_EQ(graph.count_cables(VertexKind::Nic, VertexKind::Leaf), 64);
  EXPECT_NEAR(bandwidth_between(graph, VertexKind::Nic, VertexKind::Leaf).value(), 2 * 400e9, 1);
}

TEST(NodeGraph, AverageCaseOfEveryNodeHasAFiniteTree) {
  for (const std::string& name : node_names()) {
    const Graph graph = build_graph(load_cluster(name));
    EXPECT_EQ(graph.gpus().size(), static_cast<std::size_t>(load_cluster(name).node.gpus));
    for (const Link& link : graph.links()) {
      EXPECT_GT(link.bandwidth.value(), 1e9) << name;
      EXPECT_GT(link.latency.value(), 0) << name;
    }
  }
}

Cluster hosts(const std::vector<std::string>& set) {
  std::vector<std::string> all = {"node.gpus=1", "node.scale_out.nics=1",
                                  "node.scale_up.builder=pcie", "node.host.sockets=1"};
  all.insert(all.end(), set.begin(), set.end());
  return load_cluster("hgx-h100", all);
}

TEST(Torus, LinksAndBisection) {
  const Graph graph =
      build_graph(hosts({"nodes=64", "fabric.builder=torus", "fabric.dimensions=[4,4,4]"}));
  EXPECT_EQ(graph.count_cables(VertexKind::Leaf, VertexKind::Leaf), 3 * 64);
  // Links between the halves x < 2 and x >= 2: 2 n / k.
  int crossing = 0;
  for (const Link& link : graph.links()) {
    const Vertex& a = graph.vertices()[link.from];
    const Vertex& b = graph.vertices()[link.to];
    if (a.kind == VertexKind::Leaf && b.kind == VertexKind::Leaf && a.index % 4 < 2 &&
        b.index % 4 >= 2) {
      crossing += link.parallel;
    }
  }
  EXPECT_EQ(crossing, 2 * 64 / 4);
}

TEST(Torus, SizeTwoHasBothLinksToTheSameNeighbour) {
  const Graph graph =
      build_graph(hosts({"nodes=4", "fabric.builder=torus", "fabric.dimensions=[2,2]"}));
  EXPECT_EQ(graph.count_cables(VertexKind::Leaf, VertexKind::Leaf), 8);
  EXPECT_EQ(graph.links_from(static_cast<VertexId>(graph.vertices().size() - 1)).size(), 3U);
}

TEST(Torus, SizesMustMultiplyToTheNodes) {
  for (const char* sizes : {"[4,4]", "[]", "[65536,65536,65536,65536]", "null"}) {
    EXPECT_THROW(build_graph(hosts({"nodes=64", "fabric.builder=torus",
                                    std::string("fabric.dimensions=") + sizes})),
                 Error)
        << sizes;
  }
}

TEST(Dragonfly, FullSizeHasOneGlobalLinkAPair) {
  // a = 4, h = 2, p = 2: 9 groups of 8 hosts.
  const Graph graph =
      build_graph(hosts({"nodes=72", "fabric.builder=dragonfly", "fabric.dimensions=[4,2,2]"}));
  EXPECT_EQ(graph.count(VertexKind::Leaf), 36);
  EXPECT_EQ(graph.count_cables(VertexKind::Leaf, VertexKind::Leaf), 9 * 6 + 9 * 8 / 2);
  std::map<std::pair<int, int>, int> pairs;
  for (std::size_t i = 0; i < graph.links().size(); i += 2) {
    const Vertex& a = graph.vertices()[graph.links()[i].from];
    const Vertex& b = graph.vertices()[graph.links()[i].to];
    if (a.kind == VertexKind::Leaf && b.kind == VertexKind::Leaf && a.index / 4 != b.index / 4) {
      ++pairs[std::minmax(a.index / 4, b.index / 4)];
    }
  }
  EXPECT_EQ(pairs.size(), 36U);
  for (const auto& [pair, links] : pairs) {
    EXPECT_EQ(links, 1);
  }
  for (VertexId v = 0; v < graph.vertices().size(); ++v) {
    if (graph.vertices()[v].kind == VertexKind::Leaf) {
      EXPECT_EQ(graph.links_from(v).size(), 2U + 2U + 3U);
    }
  }
}

TEST(Dragonfly, SmallerSystemsUseTheGlobalPortsEvenly) {
  const Graph graph =
      build_graph(hosts({"nodes=24", "fabric.builder=dragonfly", "fabric.dimensions=[4,2,2]"}));
  // 3 groups: 8 global ports for 2 peers, 4 links a pair.
  EXPECT_EQ(graph.count_cables(VertexKind::Leaf, VertexKind::Leaf), 3 * 6 + 3 * 4);
}

TEST(Dragonfly, BadDimensions) {
  for (const char* sizes : {"[4,2]", "null", "[1,1,1]", "[60,4,4]", "[2,1,1]"}) {
    EXPECT_THROW(build_graph(hosts({"nodes=72", "fabric.builder=dragonfly",
                                    std::string("fabric.dimensions=") + sizes})),
                 Error)
        << sizes;
  }
}

TEST(Graph, JoiningTwiceAddsParallelCables) {
  Graph graph;
  const VertexId a = graph.add_vertex(VertexKind::Leaf, -1, 0);
  const VertexId b = graph.add_vertex(VertexKind::Spine, -1, 0);
  graph.join(a, b, BytesPerSecond(1e9), Seconds(1e-6), 1, LinkKind::Network);
  graph.join(b, a, BytesPerSecond(1e9), Seconds(1e-6), 2, LinkKind::Network);
  ASSERT_EQ(graph.links().size(), 2U);
  for (const Link& link : graph.links()) {
    EXPECT_EQ(link.parallel, 3);
    EXPECT_EQ(link.bandwidth, BytesPerSecond(3e9));
  }
}

}  // namespace
}  // namespace orrery::topologies
