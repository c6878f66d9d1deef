// SPDX-License-Identifier: Apache-2.0
// Properties of flows over time: bytes are conserved and relabelling changes nothing.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/random.hpp"
#include "sim/engine/flow_network.hpp"
#include "tests/property/sim/fair_share_reference.hpp"

namespace orrery::sim {
namespace {

// A two-level fat tree with destination-index routing.
std::vector<ResourceId> tree_route(std::uint32_t from, std::uint32_t to, std::uint32_t hosts,
                                   std::uint32_t per_leaf) {
  if (from / per_leaf == to / per_leaf) {
    return {from, hosts + to};
  }
  const std::uint32_t spine = to % per_leaf;
  return {from, 2 * hosts + from / per_leaf * per_leaf + spine,
          3 * hosts + to / per_leaf * per_leaf + spine, hosts + to};
}

TEST(FairShareFlows, EqualProgressiveFillingOnAFatTree) {
  constexpr std::uint32_t kHosts = 64;
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    Random random(seed);
    FairShare share;
    const std::vector<double> capacities(4 * kHosts, 50e9);
    for (const double capacity : capacities) {
      share.add_resource(capacity);
    }
    std::vector<std::pair<FairShare::Variable, testing::ReferenceVariable>> live;
    const auto add = [&] {
      const auto from = static_cast<std::uint32_t>(random.below(kHosts));
      const auto to = static_cast<std::uint32_t>(random.below(kHosts));
      testing::ReferenceVariable flow{{}, FairShare::kUnbounded, 1.0, 1};
      for (const ResourceId link : tree_route(from, to, kHosts, 8)) {
        flow.demands.push_back({link, 1.0});
      }
      live.emplace_back(share.add(flow.demands), flow);
    };
    for (int i = 0; i < 256; ++i) {
      add();
    }
    for (int step = 0; step < 400; ++step) {
      const std::size_t victim = random.below(live.size());
      share.remove(live[victim].first);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
      add();
      share.solve();
      if (step % 40 != 0) {
        continue;
      }
      std::vector<testing::ReferenceVariable> flows;
      for (const auto& [variable, flow] : live) {
        flows.push_back(flow);
      }
      const auto expected = testing::reference_rates(capacities, flows);
      for (std::size_t i = 0; i < live.size(); ++i) {
        const auto want = static_cast<double>(expected[i]);
        ASSERT_NEAR(share.rate(live[i].first), want, 1e-10 * want) << "step " << step;
      }
    }
  }
}

struct Traffic {
  std::vector<std::int64_t> bytes;
  std::vector<SimTime> latency;
  std::vector<std::vector<ResourceId>> routes;
  std::vector<double> capacities;
};

Traffic any_traffic() {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  Traffic traffic;
  const std::uint64_t links = 1 + random.below(8);
  for (std::uint64_t i = 0; i < links; ++i) {
    traffic.capacities.push_back(1e9 * (0.1 + random.uniform()));
  }
  const std::uint64_t flows = 1 + random.below(20);
  for (std::uint64_t i = 0; i < flows; ++i) {
    traffic.bytes.push_back(static_cast<std::int64_t>(random.below(100'000)));
    traffic.latency.push_back({static_cast<std::int64_t>(random.below(50'000'000))});
    std::vector<ResourceId> route;
    for (std::uint64_t hop = 0; hop < 1 + random.below(3); ++hop) {
      route.push_back(static_cast<ResourceId>(random.below(links)));
    }
    traffic.routes.push_back(route);
  }
  return traffic;
}

struct Ends {
  std::vector<SimTime> end;
  std::vector<double> moved;  // integral of the rate
  std::vector<double> final_rate;
};

// `order`: the order in which links are made (a relabelling).
Ends simulate(const Traffic& traffic, const std::vector<std::size_t>& order) {
  FlowNetwork network;
  std::vector<ResourceId> label(order.size());
  for (const std::size_t link : order) {
    label[link] = network.add_link(traffic.capacities[link]);
  }
  std::map<FlowId, std::size_t> live;
  for (std::size_t i = 0; i < traffic.bytes.size(); ++i) {
    std::vector<ResourceId> route;
    for (const ResourceId link : traffic.routes[i]) {
      route.push_back(label[link]);
    }
    live[network.start(ByteCount(traffic.bytes[i]), route, traffic.latency[i])] = i;
  }
  Ends result{std::vector<SimTime>(live.size()), std::vector<double>(live.size()),
              std::vector<double>(live.size())};
  while (!live.empty()) {
    const SimTime before = network.now();
    std::map<FlowId, double> rates;
    for (const auto& [flow, index] : live) {
      rates[flow] = network.rate(flow);
    }
    const auto ended = network.advance();
    RC_ASSERT(!ended.empty());
    for (const auto& [flow, rate] : rates) {
      result.moved[live[flow]] += rate * to_seconds(network.now() - before).value();
      result.final_rate[live[flow]] = rate;
    }
    for (const FlowId flow : ended) {
      result.end[live[flow]] = network.now();
      live.erase(flow);
    }
  }
  return result;
}

std::vector<std::size_t> identity(std::size_t size) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// What a flow moved is its size: the end is rounded up by less than a picosecond (and the slop of
// a thousandth below it).
TEST(FairShareFlows, BytesAreConserved) {
  EXPECT_TRUE(rc::check([] {
    Traffic traffic = any_traffic();
    std::fill(traffic.latency.begin(), traffic.latency.end(), SimTime{});
    const Ends ends = simulate(traffic, identity(traffic.capacities.size()));
    for (std::size_t i = 0; i < ends.end.size(); ++i) {
      const auto bytes = static_cast<double>(traffic.bytes[i]);
      const double most = ends.final_rate[i] * 1.001e-12 + 1e-9 * bytes;
      RC_ASSERT(ends.moved[i] >= bytes - most);
      RC_ASSERT(ends.moved[i] <= bytes + most);
    }
  }));
}

TEST(FairShareFlows, LinksCanBeRelabelled) {
  EXPECT_TRUE(rc::check([] {
    const Traffic traffic = any_traffic();
    std::vector<std::size_t> order = identity(traffic.capacities.size());
    const Ends straight = simulate(traffic, order);
    std::reverse(order.begin(), order.end());
    const Ends reversed = simulate(traffic, order);
    for (std::size_t i = 0; i < straight.end.size(); ++i) {
      RC_ASSERT(std::abs(straight.end[i].ps - reversed.end[i].ps) <= 1);
    }
  }));
}

TEST(FairShareFlows, SameInputSameTimes) {
  EXPECT_TRUE(rc::check([] {
    const Traffic traffic = any_traffic();
    const auto order = identity(traffic.capacities.size());
    RC_ASSERT(simulate(traffic, order).end == simulate(traffic, order).end);
  }));
}

// A flow is never faster than alone.
TEST(FairShareFlows, NobodyIsFasterThanAlone) {
  EXPECT_TRUE(rc::check([] {
    const Traffic traffic = any_traffic();
    const Ends ends = simulate(traffic, identity(traffic.capacities.size()));
    for (std::size_t i = 0; i < ends.end.size(); ++i) {
      double narrowest = 1e300;
      std::map<ResourceId, int> crossings;
      for (const ResourceId link : traffic.routes[i]) {
        ++crossings[link];
      }
      for (const auto& [link, times] : crossings) {
        narrowest = std::min(narrowest, traffic.capacities[link] / times);
      }
      const double alone = static_cast<double>(traffic.bytes[i]) / narrowest;
      RC_ASSERT(to_seconds(ends.end[i] - traffic.latency[i]).value() >= alone * (1 - 1e-9) - 2e-15);
    }
  }));
}

}  // namespace
}  // namespace orrery::sim
