// SPDX-License-Identifier: Apache-2.0
// Routes: fewest links (never weighted by bandwidth). Among equal paths the next link is chosen by
// the destination's route index, digit by digit in the mixed radix of the choices met, which
// spreads shifts and all-to-all evenly over a fat tree; or by a seeded hash of both ends (ECMP).
// Scale-up links go before others of the same length. GPUs and CPUs forward only where switches
// alone do not connect: NVSwitch nodes relay through a GPU first (rail-only fabrics, as NCCL's
// PXN), others through the sockets. A search costs O(vertices + links) per destination, kept for
// the next source; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "topologies/graph.hpp"

namespace orrery::topologies {

struct Route {
  std::vector<LinkId> links;  // in order; empty when both ends are the same vertex
  Seconds latency;            // sum over the links
  BytesPerSecond bandwidth;   // of the narrowest link; 0 when there are no links
};

struct RoutingOptions {
  bool hash = false;
  std::uint64_t seed = 1;
};
RoutingOptions routing_options(const Fabric& fabric);

class Router {
 public:
  explicit Router(const Graph& graph, RoutingOptions options = {});
  ~Router();
  Router(Router&&) noexcept;
  Router& operator=(Router&&) noexcept;

  std::optional<Route> find(VertexId from, VertexId to);
  Route route(VertexId from, VertexId to);  // Error naming both ends when there is none

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orrery::topologies
