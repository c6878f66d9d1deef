// SPDX-License-Identifier: Apache-2.0
#include "topologies/routing.hpp"

#include <fmt/format.h>

#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <limits>
#include <unordered_map>

#include "base/error.hpp"
#include "base/random.hpp"

namespace orrery::topologies {
namespace {

using Csr = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property,
                                               boost::no_property, boost::no_property,
                                               std::uint32_t, std::uint32_t>;
using Distances = std::vector<std::uint16_t>;
constexpr std::uint16_t kUnreached = std::numeric_limits<std::uint16_t>::max();
constexpr std::size_t kMaxCachedDistances = std::size_t{1} << 26;  // entries, 128 MiB

// Searches start at the destination, so an edge leaves the vertex that would forward. GPUs do not,
// unless they are the destination itself or relaying is allowed.
struct Forwards {
  const Csr* csr = nullptr;
  const Graph* graph = nullptr;
  VertexId destination = 0;
  bool relay = false;
  template <typename Edge>
  bool operator()(const Edge& edge) const {
    const VertexId from = boost::source(edge, *csr);
    return relay || from == destination || graph->vertices()[from].kind != VertexKind::Gpu;
  }
};

class DistanceVisitor : public boost::default_bfs_visitor {
 public:
  explicit DistanceVisitor(Distances& distances) : distances_(&distances) {}
  template <typename Edge, typename G>
  void tree_edge(const Edge& edge, const G& graph) const {
    const std::uint16_t from = (*distances_)[boost::source(edge, graph)];
    ORRERY_CHECK(from + 1 < kUnreached, "paths are shorter than 65,535 links");
    (*distances_)[boost::target(edge, graph)] = static_cast<std::uint16_t>(from + 1);
  }

 private:
  Distances* distances_;
};

}  // namespace

struct Router::State {
  State(const Graph& g, RoutingOptions o) : graph(g), options(o) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    edges.reserve(g.links().size());
    for (const Link& link : g.links()) {
      edges.emplace_back(link.from, link.to);
    }
    csr = Csr(boost::edges_are_unsorted_multi_pass, edges.begin(), edges.end(),
              static_cast<std::uint32_t>(g.vertices().size()));
  }

  const Distances& distances_to(VertexId destination, bool relay) {
    const std::uint64_t key = std::uint64_t{destination} * 2 + (relay ? 1 : 0);
    if (const auto found = cache.find(key); found != cache.end()) {
      return found->second;
    }
    const std::size_t size = graph.vertices().size();
    if ((cache.size() + 1) * size > kMaxCachedDistances) {
      cache.clear();
    }
    Distances distances(size, kUnreached);
    distances[destination] = 0;
    const boost::filtered_graph<Csr, Forwards> forwarding(
        csr, Forwards{&csr, &graph, destination, relay});
    boost::breadth_first_search(forwarding, destination,
                                boost::visitor(DistanceVisitor(distances)));
    return cache.emplace(key, std::move(distances)).first->second;
  }

  // The digit of this step: which of `choices` equal next links.
  std::size_t choose(std::uint64_t& digits, std::size_t choices) const {
    if (choices == 1) {
      return 0;
    }
    if (options.hash) {
      digits = mix64(digits);
      return static_cast<std::size_t>(digits % choices);
    }
    const auto digit = static_cast<std::size_t>(digits % choices);
    digits /= choices;
    return digit;
  }

  Route walk(VertexId from, VertexId to, const Distances& distances, bool relay) const {
    Route route;
    std::uint64_t digits = static_cast<std::uint64_t>(graph.vertices()[to].route_index);
    if (options.hash) {
      digits = mix64(mix64(options.seed ^ mix64(from)) ^ mix64(to));
    }
    std::vector<LinkId> candidates;
    for (VertexId at = from; at != to;) {
      candidates.clear();
      for (const LinkId id : graph.links_from(at)) {
        const VertexId next = graph.links()[id].to;
        const bool forwards =
            relay || next == to || graph.vertices()[next].kind != VertexKind::Gpu;
        if (forwards && distances[next] + 1 == distances[at]) {
          candidates.push_back(id);
        }
      }
      ORRERY_CHECK(!candidates.empty(), "a reached vertex has a next link");
      const Link& link = graph.links()[candidates[choose(digits, candidates.size())]];
      route.links.push_back(static_cast<LinkId>(&link - graph.links().data()));
      route.latency += link.latency;
      if (route.links.size() == 1 || link.bandwidth < route.bandwidth) {
        route.bandwidth = link.bandwidth;
      }
      at = link.to;
    }
    return route;
  }

  const Graph& graph;
  RoutingOptions options;
  Csr csr;
  std::unordered_map<std::uint64_t, Distances> cache;
};

RoutingOptions routing_options(const Fabric& fabric) {
  return {fabric.ecmp_hash, static_cast<std::uint64_t>(fabric.ecmp_seed)};
}

Router::Router(const Graph& graph, RoutingOptions options)
    : state_(std::make_unique<State>(graph, options)) {}
Router::~Router() = default;
Router::Router(Router&&) noexcept = default;
Router& Router::operator=(Router&&) noexcept = default;

std::optional<Route> Router::find(VertexId from, VertexId to) {
  for (const bool relay : {false, true}) {
    const Distances& distances = state_->distances_to(to, relay);
    if (distances[from] != kUnreached) {
      return state_->walk(from, to, distances, relay);
    }
  }
  return std::nullopt;
}

Route Router::route(VertexId from, VertexId to) {
  if (std::optional<Route> route = find(from, to)) {
    return *std::move(route);
  }
  bad_input("cluster", fmt::format("no route from {} to {}", state_->graph.name(from),
                                   state_->graph.name(to)),
            "join them by a fabric, or use one node");
}

}  // namespace orrery::topologies
