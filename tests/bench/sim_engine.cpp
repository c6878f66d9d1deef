// SPDX-License-Identifier: Apache-2.0
// Speed of the event engine and of the sweep on pipeline-like programs: 64 streams of about 6,000
// passes in 1F1B order, each pass after its neighbour's; with data dependencies alone, and with a
// transfer node between the stages. items_per_second counts nodes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "sim/engine/engine.hpp"

namespace orrery::sim {
namespace {

constexpr int kStages = 64;
constexpr int kMicroBatches = 3072;

struct PassNodes {
  std::vector<NodeId> forward;
  std::vector<NodeId> backward;
};

PassNodes add_stage(Program& program, int stage) {
  const StreamId stream =
      program.add_stream(static_cast<std::uint32_t>(stage), StreamKind::Compute, "compute");
  PassNodes nodes;
  const int warm_up = std::min(kStages - stage, kMicroBatches);
  for (int step = 0; step < kMicroBatches + warm_up; ++step) {
    if (step < kMicroBatches) {
      nodes.forward.push_back(program.add_work(stream, {1000 + stage}, {}));
    }
    if (step >= warm_up) {
      nodes.backward.push_back(program.add_work(stream, {2000 + stage}, {}));
    }
  }
  return nodes;
}

void connect(Program& program, NodeId producer, NodeId consumer, bool transfers) {
  if (transfers) {
    const NodeId transfer = program.add_flow({}, {50}, Bytes(0), {}, {});
    program.depend(transfer, producer);
    producer = transfer;
  }
  program.depend(consumer, producer);
}

Program pipeline(bool transfers) {
  Program program;
  std::vector<PassNodes> stages;
  for (int stage = 0; stage < kStages; ++stage) {
    stages.push_back(add_stage(program, stage));
  }
  for (std::size_t i = 0; i + 1 < stages.size(); ++i) {
    for (std::size_t j = 0; j < kMicroBatches; ++j) {
      connect(program, stages[i].forward[j], stages[i + 1].forward[j], transfers);
      connect(program, stages[i + 1].backward[j], stages[i].backward[j], transfers);
    }
  }
  for (std::size_t j = 0; j < kMicroBatches; ++j) {
    program.depend(stages.back().backward[j], stages.back().forward[j]);
  }
  program.finalize();
  return program;
}

void count_nodes(benchmark::State& state, const Program& program) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(program.num_nodes()));
  state.counters["nodes"] = static_cast<double>(program.num_nodes());
}

void run_pipeline(benchmark::State& state) {
  const Program program = pipeline(state.range(0) != 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(run(program).makespan);
  }
  count_nodes(state, program);
}
BENCHMARK(run_pipeline)->ArgName("transfers")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void sweep_pipeline(benchmark::State& state) {
  const Program program = pipeline(state.range(0) != 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(sweep(program).makespan);
  }
  count_nodes(state, program);
}
BENCHMARK(sweep_pipeline)->ArgName("transfers")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void build_pipeline(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(pipeline(state.range(0) != 0).num_nodes());
  }
  count_nodes(state, pipeline(state.range(0) != 0));
}
BENCHMARK(build_pipeline)->ArgName("transfers")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::sim
