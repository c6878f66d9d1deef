// SPDX-License-Identifier: Apache-2.0
// Routes over random clusters: every pair is connected by a contiguous shortest path, the summary
// agrees with the graph, and removing what no shortest path uses changes no route (P22).
#include "topologies/routing.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <deque>
#include <limits>

#include "base/math.hpp"
#include "topologies/summary.hpp"

namespace orrery::topologies {
namespace {

std::string with(const std::string& path, int value) { return path + "=" + std::to_string(value); }

// A cluster of 2 to 40 small nodes on one of the fabrics.
Cluster random_cluster() {
  static const std::vector<std::string> kNodes = {
      "hgx-h100", "dgx-1v", "p5",   "p4d",      "mi300x-8", "l40s-8",
      "ac922",    "dgx-2",  "ndv2", "mi250x-8", "gh200-4",  "fire-flyer-a100"};
  const std::string node = *rc::gen::elementOf(kNodes);
  const std::string builder = *rc::gen::elementOf(std::vector<std::string>{
      "single-switch", "fat-tree", "rail-optimised", "dragonfly", "torus"});
  int nodes = *rc::gen::inRange(2, 41);
  std::vector<std::string> set = {"fabric.builder=" + builder, "fabric.radix=4096",
                                  "fabric.levels=3", "fabric.planes=1"};
  if (builder == "torus") {
    const int x = *rc::gen::inRange(1, 5);
    const int y = *rc::gen::inRange(1, 5);
    nodes = std::max(2, x * y);
    set.push_back("fabric.dimensions=[" + std::to_string(nodes == x * y ? x : 2) + "," +
                  std::to_string(nodes == x * y ? y : 1) + "]");
  } else if (builder == "dragonfly") {
    set.push_back("fabric.dimensions=[16,16,64]");
  } else {
    set.push_back(with("fabric.nodes_per_leaf", *rc::gen::inRange(1, 7)));
    set.push_back("fabric.spine_radix=" +
                  std::to_string(*rc::gen::elementOf(std::vector<int>{4096, 1024, 512})));
    set.push_back(with("fabric.oversubscription", *rc::gen::inRange(1, 4)));
  }
  set.push_back(with("nodes", nodes));
  return load_cluster(node, set);
}

VertexId any_gpu(const Graph& graph) {
  return graph.gpus()[*rc::gen::inRange<std::size_t>(0, graph.gpus().size())];
}

TEST(RouteProperties, EveryPairHasAContiguousRoute) {
  EXPECT_TRUE(rc::check([] {
    const Cluster cluster = random_cluster();
    const Graph graph = build_graph(cluster);
    Router router(graph, {.hash = *rc::gen::arbitrary<bool>(), .seed = 3});
    for (int i = 0; i < 8; ++i) {
      const VertexId from = any_gpu(graph);
      const VertexId to = any_gpu(graph);
      const Route route = router.route(from, to);
      VertexId at = from;
      Seconds latency;
      for (const LinkId id : route.links) {
        const Link& link = graph.links()[id];
        RC_ASSERT(link.from == at);
        RC_ASSERT(route.bandwidth <= link.bandwidth);
        latency += link.latency;
        at = link.to;
      }
      RC_ASSERT(at == to);
      RC_ASSERT(latency == route.latency);
      RC_ASSERT(router.route(from, to).links == route.links);
      RC_ASSERT(router.route(to, from).links.size() == route.links.size());
    }
  }));
}

TEST(RouteProperties, LinksComeInEqualPairs) {
  EXPECT_TRUE(rc::check([] {
    const Graph graph = build_graph(random_cluster());
    RC_ASSERT(graph.links().size() % 2 == 0);
    for (std::size_t i = 0; i < graph.links().size(); i += 2) {
      const Link& there = graph.links()[i];
      const Link& back = graph.links()[i + 1];
      RC_ASSERT(there.from == back.to && there.to == back.from);
      RC_ASSERT(there.bandwidth == back.bandwidth && there.parallel == back.parallel);
    }
  }));
}

int switches_on(const Graph& graph, const Route& route) {
  return static_cast<int>(std::count_if(route.links.begin(), route.links.end(), [&](LinkId id) {
    return graph.vertices()[graph.links()[id].to].node < 0;
  }));
}

TEST(RouteProperties, TheSummaryCountsTheSwitchesOfTheGraph) {
  EXPECT_TRUE(rc::check([] {
    const Cluster cluster = random_cluster();
    const Graph graph = build_graph(cluster);
    Router router(graph);
    const int groups = nic_groups(cluster.node);
    const int a = *rc::gen::inRange(0, cluster.num_nodes);
    const int b = *rc::gen::inRange(0, cluster.num_nodes);
    const auto first_nic = [&](int node) {
      return graph.nics()[static_cast<std::size_t>(node * groups)];
    };
    const Route route = router.route(first_nic(a), first_nic(b));
    const int switches = switches_on(graph, route);
    if (cluster.fabric.builder == "dragonfly") {
      RC_ASSERT(switches <= switches_between(cluster, a, b));  // that one is the usual path
      return;
    }
    RC_ASSERT(switches == switches_between(cluster, a, b));
    RC_ASSERT(std::abs(network_latency(cluster, switches).value() - route.latency.value()) < 1e-12);
  }));
}

TEST(RouteProperties, SharesAreFractionsAndFallWithOversubscription) {
  EXPECT_TRUE(rc::check([] {
    const Cluster cluster = random_cluster();
    const int stride = *rc::gen::inRange(1, cluster.num_nodes);
    const int count = 1 + (cluster.num_nodes - 1) / stride;
    for (const Traffic traffic : {Traffic::Ring, Traffic::AllToAll}) {
      const double share = uplink_share(cluster, {0, count, stride}, traffic);
      RC_ASSERT(share > 0 && share <= 1);
      Cluster worse = cluster;
      worse.fabric.oversubscription *= 2;
      RC_ASSERT(uplink_share(worse, {0, count, stride}, traffic) <= share + 1e-12);
    }
  }));
}

constexpr int kFar = std::numeric_limits<int>::max() / 4;

// Links to every vertex when switches only forward.
std::vector<int> distances(const Graph& graph, VertexId start) {
  std::vector<int> distance(graph.vertices().size(), kFar);
  std::deque<VertexId> queue = {start};
  distance[start] = 0;
  while (!queue.empty()) {
    const VertexId at = queue.front();
    queue.pop_front();
    const VertexKind kind = graph.vertices()[at].kind;
    if (at != start && (kind == VertexKind::Gpu || kind == VertexKind::Cpu)) {
      continue;
    }
    for (const LinkId id : graph.links_from(at)) {
      const VertexId next = graph.links()[id].to;
      if (distance[next] == kFar) {
        distance[next] = distance[at] + 1;
        queue.push_back(next);
      }
    }
  }
  return distance;
}

Graph without(const Graph& graph, LinkId removed) {
  Graph copy;
  for (const Vertex& vertex : graph.vertices()) {
    copy.set_route_index(copy.add_vertex(vertex.kind, vertex.node, vertex.index),
                         vertex.route_index);
  }
  for (LinkId id = 0; id < graph.links().size(); id += 2) {
    const Link& link = graph.links()[id];
    if (id != (removed & ~1U)) {
      copy.join(link.from, link.to, link.bandwidth / static_cast<double>(link.parallel),
                link.latency, link.parallel, link.kind);
    }
  }
  return copy;
}

std::vector<VertexId> stops(const Graph& graph, const Route& route) {
  std::vector<VertexId> vertices;
  for (const LinkId id : route.links) {
    vertices.push_back(graph.links()[id].to);
  }
  return vertices;
}

TEST(RouteProperties, RemovingAnUnusedLinkChangesNothing) {
  EXPECT_TRUE(rc::check([] {
    const Graph graph = build_graph(random_cluster());
    const VertexId from = any_gpu(graph);
    const VertexId to = any_gpu(graph);
    const std::vector<int> ahead = distances(graph, from);
    const std::vector<int> behind = distances(graph, to);
    RC_PRE(ahead[to] < kFar);
    const LinkId id = *rc::gen::inRange<LinkId>(0, static_cast<LinkId>(graph.links().size()));
    const Link& link = graph.links()[id];
    const auto on_path = [&](VertexId a, VertexId b) {
      return ahead[a] + 1 + behind[b] == ahead[to];
    };
    RC_PRE(!on_path(link.from, link.to) && !on_path(link.to, link.from));
    const Graph smaller = without(graph, id);
    RC_ASSERT(stops(smaller, Router(smaller).route(from, to)) ==
              stops(graph, Router(graph).route(from, to)));
  }));
}

// One more node on the ideal switch leaves the routes of the others as they were.
TEST(RouteProperties, AnIdleNodeChangesNothing) {
  EXPECT_TRUE(rc::check([] {
    const int nodes = *rc::gen::inRange(2, 12);
    const std::vector<std::string> set = {"fabric.builder=single-switch"};
    const Graph small = build_graph(load_cluster("hgx-h100:" + std::to_string(nodes), set));
    const Graph large = build_graph(load_cluster("hgx-h100:" + std::to_string(nodes + 1), set));
    const auto a = *rc::gen::inRange<std::size_t>(0, small.gpus().size());
    const auto b = *rc::gen::inRange<std::size_t>(0, small.gpus().size());
    const Route before = Router(small).route(small.gpus()[a], small.gpus()[b]);
    const Route after = Router(large).route(large.gpus()[a], large.gpus()[b]);
    RC_ASSERT(before.links.size() == after.links.size());
    RC_ASSERT(before.latency == after.latency);
    RC_ASSERT(before.bandwidth == after.bandwidth);
  }));
}

}  // namespace
}  // namespace orrery::topologies
