// SPDX-License-Identifier: Apache-2.0
// The flat mode: one transformer iteration on 512 ranks (tensor parallel 8, data parallel 64, 32
// layers, 4 micro-batches) lowered from a real network, with every rank apart and with one rank for
// all. The bars: below 0.5 s and below 5 ms, equal times. Kernels and collectives have fixed
// durations, as in the comparison of the bars; "sharing" lets them slow each other down.
#include <benchmark/benchmark.h>

#include "plan/flat/flat.hpp"
#include "plan/stages.hpp"
#include "sim/engine/fold.hpp"

namespace orrery::plan {
namespace {

Plan iteration_512(bool sharing) {
  Plan plan;
  plan.network = models::load_network("llama2-7b");
  plan.cluster = topologies::load_cluster("dgx-a100:64");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.batch = 256;
  plan.sequence = plan.network.spec.sequence;
  plan.dp = 64;
  plan.stage_blocks = even_stages(plan.network, 1);
  BlockPlan layout;
  layout.tp = 8;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  plan.execution.overlap_tp = sharing;
  if (!sharing) {
    plan.profile.collective_sms = 0;
  }
  check_plan(plan, "benchmark");
  return plan;
}

void count_nodes(benchmark::State& state, const sim::Program& program) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(program.num_nodes()));
  state.counters["nodes"] = static_cast<double>(program.num_nodes());
}

constexpr FlatOptions kAllRanks{.all_ranks = true, .merge_kernels = true};
constexpr FlatOptions kOneRank{.all_ranks = false, .merge_kernels = true};

void build_flat_512(benchmark::State& state) {
  const Plan plan = iteration_512(false);
  for (auto _ : state) {
    benchmark::DoNotOptimize(flat_program(plan, kAllRanks).num_nodes());
  }
  count_nodes(state, flat_program(plan, kAllRanks));
}
BENCHMARK(build_flat_512)->Unit(benchmark::kMillisecond);

void run_flat_512(benchmark::State& state) {
  const sim::Program program = flat_program(iteration_512(false), kAllRanks);
  for (auto _ : state) {
    benchmark::DoNotOptimize(sim::run(program).makespan);
  }
  count_nodes(state, program);
}
BENCHMARK(run_flat_512)->Unit(benchmark::kMillisecond);

void sweep_flat_512(benchmark::State& state) {
  const sim::Program program = flat_program(iteration_512(false), kAllRanks);
  for (auto _ : state) {
    benchmark::DoNotOptimize(sim::sweep(program).makespan);
  }
  count_nodes(state, program);
}
BENCHMARK(sweep_flat_512)->Unit(benchmark::kMillisecond);

void run_flat_512_sharing(benchmark::State& state) {
  const sim::Program program = flat_program(iteration_512(true), kAllRanks);
  for (auto _ : state) {
    benchmark::DoNotOptimize(sim::run(program).makespan);
  }
  count_nodes(state, program);
}
BENCHMARK(run_flat_512_sharing)->Unit(benchmark::kMillisecond);

void fold_flat_512(benchmark::State& state) {
  const sim::Program program = flat_program(iteration_512(false), kAllRanks);
  for (auto _ : state) {
    benchmark::DoNotOptimize(sim::fold(program).program.num_nodes());
  }
  count_nodes(state, program);
}
BENCHMARK(fold_flat_512)->Unit(benchmark::kMillisecond);

void run_folded_flat_512(benchmark::State& state) {
  const sim::Program program = flat_program(iteration_512(false), kAllRanks);
  const sim::Fold folded = sim::fold(program);
  if (sim::run(folded.program).makespan != sim::sweep(program).makespan) {
    state.SkipWithError("folding changed the time");
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(sim::run(folded.program).makespan);
  }
  count_nodes(state, folded.program);
}
BENCHMARK(run_folded_flat_512)->Unit(benchmark::kMicrosecond);

// From the plan to the time, with one rank that stands for all 512.
void simulate_flat_one_rank(benchmark::State& state) {
  const Plan plan = iteration_512(state.range(0) != 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate_flat(plan, kOneRank).iteration_time);
  }
  count_nodes(state, flat_program(plan, kOneRank));
}
BENCHMARK(simulate_flat_one_rank)
    ->ArgName("sharing")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace orrery::plan
