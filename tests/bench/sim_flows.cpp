// SPDX-License-Identifier: Apache-2.0
// Random flows in a closed loop on a non-blocking two-level fat tree of 1,024 hosts: every flow
// that ends is replaced by one between two hosts drawn at random, 1 to 64 MiB, seed 1, latency 0.
// items_per_second counts completions; `rate_changes` is the mean number of rates that one changes,
// which every exact solver has to write.
#include <benchmark/benchmark.h>

#include <array>

#include "base/random.hpp"
#include "sim/engine/flow_network.hpp"

namespace orrery::sim {
namespace {

constexpr std::uint32_t kHosts = 1024;
constexpr std::uint32_t kPerLeaf = 32;
constexpr std::uint32_t kSpines = 32;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class ClosedLoop {
 public:
  ClosedLoop() {
    for (std::uint32_t link = 0; link < 4 * kHosts; ++link) {
      network_.add_link(50e9);
    }
  }

  void start_one() {
    const auto from = static_cast<std::uint32_t>(random_.below(kHosts));
    const auto other = static_cast<std::uint32_t>(random_.below(kHosts - 1));
    const std::uint32_t to = other + (other >= from ? 1 : 0);
    const auto bytes = kMiB + static_cast<std::int64_t>(random_.below(63 * kMiB + 1));
    const std::uint32_t spine = to % kSpines;
    const std::array<ResourceId, 4> route = {from, 2 * kHosts + from / kPerLeaf * kSpines + spine,
                                             3 * kHosts + to / kPerLeaf * kSpines + spine,
                                             kHosts + to};
    if (from / kPerLeaf == to / kPerLeaf) {
      const std::array<ResourceId, 2> local = {route[0], route[3]};
      network_.start(ByteCount(bytes), local);
    } else {
      network_.start(ByteCount(bytes), route);
    }
  }

  std::int64_t step() {
    const auto ended = static_cast<std::int64_t>(network_.advance().size());
    for (std::int64_t i = 0; i < ended; ++i) {
      start_one();
    }
    return ended;
  }

  std::uint64_t rate_changes() const { return network_.rate_changes(); }

 private:
  FlowNetwork network_;
  Random random_{1};
};

void random_flows(benchmark::State& state) {
  ClosedLoop loop;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    loop.start_one();
  }
  loop.step();
  const std::uint64_t changes_before = loop.rate_changes();
  std::int64_t completions = 0;
  for (auto _ : state) {
    completions += loop.step();
  }
  state.SetItemsProcessed(completions);
  state.counters["rate_changes"] =
      static_cast<double>(loop.rate_changes() - changes_before) / static_cast<double>(completions);
}
BENCHMARK(random_flows)->Arg(256)->Arg(1024)->Arg(4096)->MinTime(1.0);

// One link under n flows, each with a narrow link of its own: one leaves, one arrives.
void hub(benchmark::State& state) {
  FairShare share;
  Random random(1);
  const auto n = static_cast<std::size_t>(state.range(0));
  const ResourceId wide = share.add_resource(static_cast<double>(n));
  std::vector<std::array<Demand, 2>> demands;
  std::vector<FairShare::Variable> variables;
  for (std::size_t i = 0; i < n; ++i) {
    const ResourceId own = share.add_resource(2.2 * random.uniform());
    demands.push_back({Demand{wide, 1.0}, Demand{own, 1.0}});
    variables.push_back(share.add(demands.back()));
  }
  share.solve();
  for (auto _ : state) {
    const std::size_t i = random.below(n);
    share.remove(variables[i]);
    benchmark::DoNotOptimize(share.solve().size());
    variables[i] = share.add(demands[i]);
    benchmark::DoNotOptimize(share.solve().size());
  }
  state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(hub)->Arg(100)->Arg(4000);

}  // namespace
}  // namespace orrery::sim
