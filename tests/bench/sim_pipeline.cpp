// SPDX-License-Identifier: Apache-2.0
// Pipelines: order generation and evaluation, with and without the steady-state shortcut. The bars:
// the full sweep at least 30 million passes per second; p = 64, m = 512 well below 1 ms together.
#include <benchmark/benchmark.h>

#include <string>

#include "base/random.hpp"
#include "sim/orders/schedule_rule.hpp"
#include "sim/pipeline/pipeline.hpp"

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

// A first and a last stage with more to do, others up to 10 % apart, and transfers.
std::vector<PassTimes> unequal_times(int stages) {
  std::vector<PassTimes> times;
  for (int s = 0; s < stages; ++s) {
    const std::int64_t more = s + 1 == stages ? 130 : s == 0 ? 104 : 100 + 7 * s % 11;
    times.push_back(
        {SimTime{10'000 * more}, SimTime{10'300 * more}, SimTime{8'900 * more}, SimTime{20'000}});
  }
  return times;
}

// Every pass up to a tenth more or less than the mean, on its own: few decisions come again.
std::vector<PassTimes> jittered_times(int stages) {
  Random random(1);
  const auto about = [&](std::int64_t mean) {
    const std::int64_t tenth = mean / 10;
    return SimTime{mean - tenth +
                   static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * tenth)))};
  };
  std::vector<PassTimes> times;
  for (int s = 0; s < stages; ++s) {
    times.push_back({about(1'000'000), about(1'030'000), about(890'000), SimTime{20'000}});
  }
  return times;
}

using TimesOf = std::vector<PassTimes> (*)(int stages);

// Every registered schedule with numbers that it takes, on so many stages; a pass is an item.
// Schedules that plan with times also for stages with times of their own, with `chunks` if they
// have any.
void any_order(benchmark::State& state, TimesOf times_of, int most_chunks) {
  const Schedule& schedule = *schedule_table()[static_cast<std::size_t>(state.range(0))];
  ScheduleParams params{static_cast<int>(state.range(1)), 256, 1, 0};
  const bool has_chunks = schedule.traits.uses_chunks || most_chunks == 1;
  if (times_of != nullptr && !(schedule.traits.uses_times && has_chunks)) {
    state.SkipWithError("does not plan with times, or has no chunks");
    return;
  }
  for (const int chunks : {1, 2}) {
    for (const int slices : {1, 4, 16, 64}) {
      if (!schedule.check(params).empty()) {
        params.chunks = chunks;
        params.slices = slices;
      }
    }
  }
  if (times_of != nullptr) {
    params.chunks =
        schedule.traits.uses_chunks ? std::max(params.chunks, most_chunks) : params.chunks;
    params.times = times_of(params.stages * params.chunks);
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

// A description without warm_up on such stages: chunks, whether the backward is split, stages.
void greedy_rule(benchmark::State& state) {
  ScheduleParams params{static_cast<int>(state.range(2)), 256, static_cast<int>(state.range(0)), 0};
  params.times = unequal_times(params.stages * params.chunks);
  const ScheduleDescription rule{.depth_first = true, .split_backward = state.range(1) != 0};
  std::int64_t passes = 0;
  for (auto _ : state) {
    const PipelineOrder order = run_rule(rule, params, "benchmark");
    for (const auto& list : order.passes) {
      passes += static_cast<std::int64_t>(list.size());
    }
  }
  state.SetItemsProcessed(passes);
}

void all_schedules(benchmark::internal::Benchmark* benchmark) {
  const auto last = static_cast<std::int64_t>(schedule_table().size()) - 1;
  benchmark->ArgsProduct({benchmark::CreateDenseRange(0, last, 1), {16, 64}})
      ->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(any_order, equal, nullptr, 1)->Apply(all_schedules);
BENCHMARK_CAPTURE(any_order, unequal, unequal_times, 1)->Apply(all_schedules);
BENCHMARK_CAPTURE(any_order, unequal_two_chunks, unequal_times, 2)->Apply(all_schedules);
BENCHMARK_CAPTURE(any_order, jittered, jittered_times, 1)->Apply(all_schedules);
BENCHMARK_CAPTURE(any_order, jittered_two_chunks, jittered_times, 2)->Apply(all_schedules);
BENCHMARK(greedy_rule)->ArgsProduct({{1, 2}, {0, 1}, {16, 64}})->Unit(benchmark::kMicrosecond);
BENCHMARK(pipeline_order)->Apply(shapes)->Unit(benchmark::kMicrosecond);
BENCHMARK(pipeline_order)->Apply(generators)->Unit(benchmark::kMicrosecond);
BENCHMARK(pipeline_sweep)->Apply(shapes)->Unit(benchmark::kMicrosecond);
BENCHMARK(pipeline_order_and_steady)->Apply(shapes)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace orrery::sim
