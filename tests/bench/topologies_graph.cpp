// SPDX-License-Identifier: Apache-2.0
// Loading a cluster, building its graph, routing, and the summary that needs no graph.
#include <benchmark/benchmark.h>

#include "topologies/routing.hpp"
#include "topologies/summary.hpp"

namespace orrery::topologies {
namespace {

void load(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(load_cluster("dgx-a100:384"));
  }
}
BENCHMARK(load)->Unit(benchmark::kMicrosecond);

void summary(benchmark::State& state) {
  const Cluster cluster = load_cluster("meta-24k-roce");
  for (auto _ : state) {
    benchmark::DoNotOptimize(uplink_share(cluster, {0, 3072, 1}, Traffic::AllToAll));
  }
}
BENCHMARK(summary)->Unit(benchmark::kNanosecond);

void build(benchmark::State& state) {
  const Cluster cluster = load_cluster("hgx-h100:" + std::to_string(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(build_graph(cluster));
  }
  state.SetItemsProcessed(state.iterations() * cluster.num_gpus());
}
BENCHMARK(build)->Arg(128)->Arg(2048)->Arg(12800)->Unit(benchmark::kMillisecond);

// New destinations need a search, known ones a walk.
void route(benchmark::State& state) {
  const Graph graph = build_graph(load_cluster("hgx-h100:128"));
  Router router(graph);
  const auto destinations = static_cast<std::size_t>(state.range(0));
  std::size_t i = 0;
  for (auto _ : state) {
    const std::size_t to = i % destinations;
    benchmark::DoNotOptimize(router.route(graph.gpus()[(i * 37) % 1024], graph.gpus()[to]));
    ++i;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(route)->Arg(8)->Arg(1024);

}  // namespace
}  // namespace orrery::topologies
