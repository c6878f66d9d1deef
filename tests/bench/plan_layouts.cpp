// SPDX-License-Identifier: Apache-2.0
// Deriving the program of a 96-layer network whose blocks have layouts of their own: kernels,
// conversions within and between blocks, and the states' collectives. The bar: 1 ms.
#include <benchmark/benchmark.h>

#include "plan/block/cost.hpp"
#include "plan/block/relayout.hpp"
#include "plan/block/states.hpp"
#include "plan/stages.hpp"

namespace orrery::plan {
namespace {

// Tensor, sequence, context and data parallelism in turn over 64 GPUs: 24 layouts for 96 layers.
Plan gpt_96_layers() {
  Plan plan;
  plan.network = models::load_network("gpt-175b");
  plan.cluster = topologies::load_cluster("dgx-a100:8");
  plan.profile = costmodel::load_profile("", plan.cluster.gpu);
  plan.batch = 512;
  plan.sequence = plan.network.spec.sequence;
  plan.dp = 8;
  plan.micro_batch = 8;
  plan.stage_blocks = even_stages(plan.network, 1);
  std::vector<BlockPlan> layouts;
  for (const int tp : {1, 2, 4, 8}) {
    for (const int cp : {1, 2}) {
      for (const int zero : {0, 1, 3}) {
        BlockPlan layout;
        layout.tp = tp;
        layout.cp = cp;
        layout.zero_stage = zero;
        layout.sequence_parallel = tp > 1;
        layouts.push_back(layout);
      }
    }
  }
  BlockPlan first;
  first.tp = 8;
  plan.blocks = {{1, first}};
  const int layers = static_cast<int>(plan.network.chain.size()) - 2;
  for (int layer = 0; layer < layers; ++layer) {
    plan.blocks.push_back({1, layouts[static_cast<std::size_t>(layer) % layouts.size()]});
  }
  plan.blocks.push_back({1, first});
  check_plan(plan, "benchmark");
  return plan;
}

void derive_96_layers(benchmark::State& state) {
  const Plan plan = gpt_96_layers();
  for (auto _ : state) {
    BlockCosts costs(plan);
    std::size_t collectives = 0;
    const BlockPlan* previous = nullptr;
    std::size_t position = 0;
    for (const BlockRun& run : plan.blocks) {
      const int block = plan.network.chain[position++];
      const BlockCost& cost = costs.of(block, run.layout, plan.micro_batch_of(run.layout, block));
      const Mesh mesh = mesh_of(run.layout, plan.data_ranks(run.layout));
      collectives += state_collectives(cost, run.layout, mesh, plan.execution, plan.precision,
                                       false, plan.cluster.node.gpus)
                         .size();
      if (previous != nullptr) {
        collectives += stream_conversions(plan, *previous, run.layout).size();
      }
      previous = &run.layout;
    }
    benchmark::DoNotOptimize(collectives);
  }
}
BENCHMARK(derive_96_layers)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace orrery::plan
