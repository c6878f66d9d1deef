// SPDX-License-Identifier: Apache-2.0
// Pipelines: order generation and evaluation, with and without the steady-state shortcut. The bars:
// the full sweep at least 30 million passes per second; p = 64, m = 512 well below 1 ms together.
#include <benchmark/benchmark.h>

#include <string>

#include "sim/pipeline.hpp"

namespace orrery::sim {
namespace {

constexpr const char* kNames[] = {"1f1b", "gpipe", "interleaved", "breadth-first",
                                  "zb-v", "zb-2p", "chimera",     "vocab-1"};

ScheduleParams params_of(const benchmark::State& state) {
  return {static_cast<int>(state.range(1)), static_cast<int>(state.range(2)),
          static_cast<int>(state.range(3)), 0};
}

// Like a real network: equal blocks, and a first and a last stage with something more to do.
PipelineCosts costs_of(const PipelineOrder& order) {
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  PipelineCosts costs;
  costs.forward.assign(stages, {10'000'000'000});
  costs.backward.assign(stages, {20'000'000'000});
  costs.forward.front().ps += 300'000'000;
  costs.forward.back().ps += 900'000'000;
  costs.backward.back().ps += 1'800'000'000;
  costs.send_forward.assign(stages - 1, {20'000'000});
  costs.send_backward.assign(stages - 1, {20'000'000});
  costs.activation.assign(stages, ByteCount(100'000'000));
  return costs;
}

void report(benchmark::State& state, const PipelineResult& result) {
  state.counters["evaluated"] = static_cast<double>(result.passes_evaluated);
  state.counters["total"] = static_cast<double>(result.passes_total);
  state.counters["evaluated/s"] = benchmark::Counter(static_cast<double>(result.passes_evaluated),
                                                     benchmark::Counter::kIsIterationInvariantRate);
}

void pipeline_order(benchmark::State& state) {
  const Schedule& schedule = find_schedule(kNames[state.range(0)], "benchmark");
  for (auto _ : state) {
    benchmark::DoNotOptimize(schedule.order(params_of(state)));
  }
  state.SetLabel(kNames[state.range(0)]);
}

void pipeline_sweep(benchmark::State& state) {
  const PipelineOrder order =
      find_schedule(kNames[state.range(0)], "benchmark").order(params_of(state));
  const PipelineCosts costs = costs_of(order);
  PipelineResult result;
  for (auto _ : state) {
    result = evaluate_pipeline(order, costs, {.steady_state = false});
  }
  report(state, result);
  state.SetLabel(kNames[state.range(0)]);
}

void pipeline_order_and_steady(benchmark::State& state) {
  const Schedule& schedule = find_schedule(kNames[state.range(0)], "benchmark");
  const PipelineCosts costs = costs_of(schedule.order(params_of(state)));
  PipelineResult result;
  for (auto _ : state) {
    result = evaluate_pipeline(schedule.order(params_of(state)), costs);
  }
  report(state, result);
  state.SetLabel(kNames[state.range(0)]);
}

// Schedule, stages, micro-batches, chunks.
void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({0, 64, 512, 1})
      ->Args({0, 64, 3072, 1})
      ->Args({1, 64, 512, 1})
      ->Args({2, 64, 512, 2})
      ->Args({2, 16, 512, 4})
      ->Args({3, 16, 512, 4})
      ->Args({0, 8, 64, 1});
}

// Lists at most 30 ns per pass; the heuristic of zb-v at most 0.3 s.
void generators(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({4, 64, 512, 2})
      ->Args({5, 64, 512, 1})
      ->Args({6, 64, 512, 1})
      ->Args({7, 64, 512, 1});
}

// Every registered schedule with numbers that it takes; a pass is an item.
void any_order(benchmark::State& state) {
  const Schedule& schedule = *schedule_table()[static_cast<std::size_t>(state.range(0))];
  ScheduleParams params{16, 256, 1, 0};
  for (const int chunks : {1, 2}) {
    for (const int slices : {1, 4, 16}) {
      if (!schedule.check(params).empty()) {
        params.chunks = chunks;
        params.slices = slices;
      }
    }
  }
  if (!schedule.check(params).empty()) {
    state.SkipWithError("none of the numbers tried are allowed");
    return;
  }
  std::int64_t passes = 0;
  for (auto _ : state) {
    const PipelineOrder order = schedule.order(params);
    for (const auto& list : order.passes) {
      passes += static_cast<std::int64_t>(list.size());
    }
  }
  state.SetItemsProcessed(passes);
  state.SetLabel(std::string(schedule.name));
}

BENCHMARK(any_order)
    ->DenseRange(0, static_cast<std::int64_t>(schedule_table().size()) - 1)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(pipeline_order)->Apply(shapes)->Unit(benchmark::kMicrosecond);
BENCHMARK(pipeline_order)->Apply(generators)->Unit(benchmark::kMicrosecond);
BENCHMARK(pipeline_sweep)->Apply(shapes)->Unit(benchmark::kMicrosecond);
BENCHMARK(pipeline_order_and_steady)->Apply(shapes)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace orrery::sim
