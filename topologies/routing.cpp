// SPDX-License-Identifier: Apache-2.0
#include "topologies/routing.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <limits>
#include <unordered_map>

#include "base/error.hpp"
#include "base/random.hpp"

namespace orrery::topologies {
namespace {

using Csr =
    boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, boost::no_property,
                                       boost::no_property, std::uint32_t, std::uint32_t>;
using Distances = std::vector<std::uint16_t>;
constexpr std::uint16_t kUnreached = std::numeric_limits<std::uint16_t>::max();
constexpr std::size_t kMaxCachedDistances = std::size_t{1} << 26;  // entries, 128 MiB

// Which vertices besides switches pass on what is not theirs.
struct Relays {
  bool gpus = false;
  bool cpus = false;
  bool allow(VertexKind kind) const {
    return (gpus || kind != VertexKind::Gpu) && (cpus || kind != VertexKind::Cpu);
  }
  std::uint64_t code() const { return (gpus ? 1U : 0U) + (cpus ? 2U : 0U); }
};

// Tried in this order. Without NVSwitches a relaying GPU would be slower than the sockets.
constexpr std::array<Relays, 4> kWithNvSwitch = {
    {{false, false}, {true, false}, {false, true}, {true, true}}};
constexpr std::array<Relays, 4> kWithoutNvSwitch = {
    {{false, false}, {false, true}, {true, false}, {true, true}}};

// Searches start at the destination, so an edge leaves the vertex that would forward.
struct Forwards {
  const Csr* csr = nullptr;
  const Graph* graph = nullptr;
  VertexId destination = 0;
  Relays relays;
  template <typename Edge>
  bool operator()(const Edge& edge) const {
    const VertexId from = boost::source(edge, *csr);
    return from == destination || relays.allow(graph->vertices()[from].kind);
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
    relay_order = g.count(VertexKind::NvSwitch) > 0 ? kWithNvSwitch : kWithoutNvSwitch;
  }

  const Distances& distances_to(VertexId destination, Relays relays) {
    const std::uint64_t key = std::uint64_t{destination} * 4 + relays.code();
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
        csr, Forwards{&csr, &graph, destination, relays});
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

  // The links that come one step nearer; scale-up links go before all others.
  void find_candidates(VertexId at, VertexId to, const Distances& distances, Relays relays) {
    candidates.clear();
    bool scale_up = false;
    for (const LinkId id : graph.links_from(at)) {
      const Link& link = graph.links()[id];
      const bool forwards = link.to == to || relays.allow(graph.vertices()[link.to].kind);
      if (!forwards || distances[link.to] + 1 != distances[at]) {
        continue;
      }
      const bool is_scale_up = link.kind == LinkKind::ScaleUp;
      if (is_scale_up && !scale_up) {
        candidates.clear();
        scale_up = true;
      }
      if (is_scale_up == scale_up) {
        candidates.push_back(id);
      }
    }
    ORRERY_CHECK(!candidates.empty(), "a reached vertex has a next link");
  }

  Route walk(VertexId from, VertexId to, const Distances& distances, Relays relays) {
    Route route;
    std::uint64_t digits = static_cast<std::uint64_t>(graph.vertices()[to].route_index);
    if (options.hash) {
      digits = mix64(mix64(options.seed ^ mix64(from)) ^ mix64(to));
    }
    for (VertexId at = from; at != to;) {
      find_candidates(at, to, distances, relays);
      const LinkId id = candidates[choose(digits, candidates.size())];
      const Link& link = graph.links()[id];
      route.links.push_back(id);
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
  std::span<const Relays> relay_order;
  std::unordered_map<std::uint64_t, Distances> cache;
  std::vector<LinkId> candidates;
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
  for (const Relays relays : state_->relay_order) {
    const Distances& distances = state_->distances_to(to, relays);
    if (distances[from] != kUnreached) {
      return state_->walk(from, to, distances, relays);
    }
  }
  return std::nullopt;
}

Route Router::route(VertexId from, VertexId to) {
  if (std::optional<Route> route = find(from, to)) {
    return *std::move(route);
  }
  bad_input("cluster",
            fmt::format("no route from {} to {}", state_->graph.name(from), state_->graph.name(to)),
            "join them by a fabric, or use one node");
}

}  // namespace orrery::topologies
