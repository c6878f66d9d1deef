// SPDX-License-Identifier: Apache-2.0
// Evaluation of plans in one process, lowering included. The bar: GPT 1T on 3,072 A100 (tensor
// parallel 8, 64 stages, 1F1B, batch 3072) at most 2 ms with nothing cached but the network and the
// cluster. Memory and lower bound are what the search asks of every plan before it simulates one.
#include <benchmark/benchmark.h>

#include "plan/simulation/simulate.hpp"
#include "plan/stages.hpp"

namespace orrery::plan {
namespace {

Plan gpt_1t() {
  Plan plan;
  plan.network = models::load_network("gpt-1t");
  plan.cluster = topologies::load_cluster("dgx-a100:384");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.batch = 3072;
  plan.sequence = plan.network.spec.sequence;
  plan.dp = 6;
  plan.pp = 64;
  plan.stage_blocks = even_stages(plan.network, plan.pp);
  BlockPlan layout;
  layout.tp = 8;
  layout.sequence_parallel = true;
  layout.recompute = Recompute::Selective;
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  check_plan(plan, "benchmark");
  return plan;
}

void simulate_gpt_1t_cold(benchmark::State& state) {
  const Plan plan = gpt_1t();
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(plan).iteration_time);
  }
}
BENCHMARK(simulate_gpt_1t_cold)->Unit(benchmark::kMicrosecond);

void simulate_gpt_1t_warm(benchmark::State& state) {
  const Plan plan = gpt_1t();
  Simulator simulator(plan);
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulator.run(plan).iteration_time);
  }
}
BENCHMARK(simulate_gpt_1t_warm)->Unit(benchmark::kMicrosecond);

void memory_gpt_1t(benchmark::State& state) {
  const Plan plan = gpt_1t();
  Simulator simulator(plan);
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulator.memory(plan).data());
  }
}
BENCHMARK(memory_gpt_1t)->Unit(benchmark::kMicrosecond);

void lower_bound_gpt_1t(benchmark::State& state) {
  const Plan plan = gpt_1t();
  Simulator simulator(plan);
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulator.lower_bound(plan));
  }
}
BENCHMARK(lower_bound_gpt_1t)->Unit(benchmark::kMicrosecond);

void work_bound_gpt_1t(benchmark::State& state) {
  const Plan plan = gpt_1t();
  Simulator simulator(plan);
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulator.work_bound(plan));
  }
}
BENCHMARK(work_bound_gpt_1t)->Unit(benchmark::kMicrosecond);

// Lowering and simulating the distinct blocks, nothing else.
void lower_blocks_gpt_1t(benchmark::State& state) {
  const Plan plan = gpt_1t();
  for (auto _ : state) {
    benchmark::DoNotOptimize(Simulator(plan).work_bound(plan));
  }
}
BENCHMARK(lower_blocks_gpt_1t)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace orrery::plan
