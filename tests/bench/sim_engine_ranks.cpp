// SPDX-License-Identifier: Apache-2.0
// Speed on many ranks: one transformer iteration on 512 ranks (tensor parallel 8, data parallel 64,
// 32 layers, 4 micro-batches) unfolded and folded, and an all-to-all of 512 ranks over shared
// links.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "sim/engine/engine.hpp"
#include "sim/engine/fold.hpp"

namespace orrery::sim {
namespace {

constexpr std::size_t kTensor = 8;
constexpr std::size_t kData = 64;
constexpr int kLayers = 32;
constexpr int kMicroBatches = 4;

class Iteration {
 public:
  Program build() {
    for (std::uint32_t rank = 0; rank < kTensor * kData; ++rank) {
      compute_.push_back(program_.add_stream(rank, StreamKind::Compute, "compute"));
      reduce_.push_back(program_.add_stream(rank, StreamKind::Collective, "reduce"));
    }
    last_.resize(compute_.size());
    for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
      for (int layer = 0; layer < kLayers; ++layer) {
        add_layer(PassKind::Forward, 100);
      }
      for (int layer = 0; layer < kLayers; ++layer) {
        add_layer(PassKind::Backward, 200);
        if (micro_batch + 1 == kMicroBatches) {
          add_gradient_reductions();
        }
      }
    }
    program_.finalize();
    return std::move(program_);
  }

 private:
  // Attention and the multilayer perceptron, each with an all-reduce over the tensor group.
  void add_layer(PassKind pass, std::int64_t duration) {
    for (int half = 0; half < 2; ++half) {
      for (std::size_t group = 0; group < kData; ++group) {
        const auto streams = std::span(compute_).subspan(group * kTensor, kTensor);
        for (std::size_t i = 0; i < kTensor; ++i) {
          last_[group * kTensor + i] =
              program_.add_work(streams[i], {duration + half}, {.pass = pass});
        }
        program_.add_group(streams, {30}, {.comm = CommKind::AllReduce});
      }
    }
  }

  void add_gradient_reductions() {
    for (std::size_t peer = 0; peer < kTensor; ++peer) {
      std::vector<StreamId> streams;
      for (std::size_t group = 0; group < kData; ++group) {
        streams.push_back(reduce_[group * kTensor + peer]);
      }
      const NodeId node = program_.add_group(streams, {90}, {.comm = CommKind::ReduceScatter});
      for (std::size_t group = 0; group < kData; ++group) {
        program_.depend(node, last_[group * kTensor + peer]);
      }
    }
  }

  Program program_;
  std::vector<StreamId> compute_;
  std::vector<StreamId> reduce_;
  std::vector<NodeId> last_;
};

void count_nodes(benchmark::State& state, const Program& program) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(program.num_nodes()));
  state.counters["nodes"] = static_cast<double>(program.num_nodes());
}

void build_iteration_512(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(Iteration().build().num_nodes());
  }
  count_nodes(state, Iteration().build());
}
BENCHMARK(build_iteration_512)->Unit(benchmark::kMillisecond);

void run_iteration_512(benchmark::State& state) {
  const Program program = Iteration().build();
  for (auto _ : state) {
    benchmark::DoNotOptimize(run(program).makespan);
  }
  count_nodes(state, program);
}
BENCHMARK(run_iteration_512)->Unit(benchmark::kMillisecond);

void sweep_iteration_512(benchmark::State& state) {
  const Program program = Iteration().build();
  for (auto _ : state) {
    benchmark::DoNotOptimize(sweep(program).makespan);
  }
  count_nodes(state, program);
}
BENCHMARK(sweep_iteration_512)->Unit(benchmark::kMillisecond);

void fold_iteration_512(benchmark::State& state) {
  const Program program = Iteration().build();
  for (auto _ : state) {
    benchmark::DoNotOptimize(fold(program).program.num_nodes());
  }
  count_nodes(state, program);
}
BENCHMARK(fold_iteration_512)->Unit(benchmark::kMillisecond);

void run_folded_iteration_512(benchmark::State& state) {
  const Fold folded = fold(Iteration().build());
  for (auto _ : state) {
    benchmark::DoNotOptimize(run(folded.program).makespan);
  }
  count_nodes(state, folded.program);
}
BENCHMARK(run_folded_iteration_512)->Unit(benchmark::kMicrosecond);

// Every pair at once, or each rank one after the other (to rank + 1, + 2, ...) on a send stream.
Program all_to_all(std::uint32_t ranks, bool at_once) {
  Program program;
  for (std::uint32_t rank = 0; rank < 2 * ranks; ++rank) {
    program.add_resource(50e9, "link");
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const StreamId stream = program.add_stream(rank, StreamKind::Send, "send");
    for (std::uint32_t step = 1; step < ranks; ++step) {
      const std::array<ResourceId, 2> route = {rank, ranks + (rank + step) % ranks};
      program.add_flow({&stream, at_once ? 0U : 1U}, {1000}, Bytes(1e6), route, {});
    }
  }
  program.finalize();
  return program;
}

void run_all_to_all_512(benchmark::State& state) {
  const Program program = all_to_all(512, state.range(0) != 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(run(program).makespan);
  }
  count_nodes(state, program);
}
BENCHMARK(run_all_to_all_512)->ArgName("at_once")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::sim
