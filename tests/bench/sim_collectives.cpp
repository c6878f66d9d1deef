// SPDX-License-Identifier: Apache-2.0
// Collectives message by message. items_per_second counts messages.
#include <benchmark/benchmark.h>

#include "sim/collective_time.hpp"

namespace orrery::sim {
namespace {

void collective(benchmark::State& state, const char* name, std::int64_t size) {
  const CollectiveCosts costs{SimTime{500'000}, BytesPerSecond(50e9), SimTime{}, {}};
  const CollectiveAlgorithm& algorithm = find_collective(name, "");
  std::uint64_t messages = 0;
  for (auto _ : state) {
    const CollectiveRun run =
        collective_time(algorithm, static_cast<int>(state.range(0)), ByteCount(size), costs);
    messages += run.messages;
    benchmark::DoNotOptimize(run.time.ps);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(messages));
}
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
BENCHMARK_CAPTURE(collective, ring_all_reduce, "ring-all-reduce", kGiB)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(collective, ring_all_reduce_uneven, "ring-all-reduce", kGiB + 1)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(collective, direct_all_to_all, "direct-all-to-all", kGiB)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(collective, direct_all_to_all_uneven, "direct-all-to-all", kGiB + 77)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(collective, pairwise_all_to_all, "pairwise-all-to-all", kGiB)
    ->Arg(512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(collective, tree_all_reduce, "tree-all-reduce", std::int64_t{64} << 20)
    ->Arg(256)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::sim
