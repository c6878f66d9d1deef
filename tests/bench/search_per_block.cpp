// SPDX-License-Identifier: Apache-2.0
// The parts of the per-block search of GPT-3 175B on 1,024 A100, batch 1536: the prices of a mesh's
// strategies, the bound of a pipeline (items: pipelines), and a draft of it simulated with its
// neighbours (items: plans simulated).
#include <benchmark/benchmark.h>

#include "search/per_block/bound.hpp"
#include "search/per_block/draft.hpp"
#include "search/problem.hpp"

namespace orrery::search {
namespace {

constexpr double kUntil = 16.9;  // seconds; what the homogeneous search finds

plan::Plan gpt3_175b() {
  Problem problem;
  problem.network = "gpt3-175b";
  problem.cluster = "dgx-a100:128";
  problem.batch = 1536;
  problem.sequence = 2048;
  return base_plan(problem);
}

Constraints one_mesh() {
  Constraints constraints;
  constraints.fix("pp=8,schedule=interleaved,chunks=6");
  return constraints;
}

const StageMesh& mesh_of(const PerBlockSpace& space) {
  std::size_t index = 0;
  while (space.meshes()[index].samples != 64) {
    ++index;
  }
  return space.meshes()[index];
}

void price_mesh(benchmark::State& state) {
  const Constraints constraints = one_mesh();
  const PerBlockSpace space(gpt3_175b(), constraints);
  for (auto _ : state) {
    BlockPricer pricer(space);
    benchmark::DoNotOptimize(pricer.price(mesh_of(space)).choices.size());
  }
}
BENCHMARK(price_mesh)->Unit(benchmark::kMillisecond);

void bound_pipeline(benchmark::State& state) {
  const Constraints constraints = one_mesh();
  const PerBlockSpace space(gpt3_175b(), constraints);
  const StageMesh& mesh = mesh_of(space);
  const Pipeline pipeline = space.pipelines(mesh).front();
  BlockPricer pricer(space);
  const MeshCosts costs = pricer.price(mesh);
  plan::Simulator simulator(space.homogeneous().base());
  PipelineBounds bounds(space, simulator);
  const bool whole = state.range(0) != 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(bounds.bound(mesh, pipeline, costs, kUntil, whole).seconds);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(bound_pipeline)->ArgName("whole")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void draft_pipeline(benchmark::State& state) {
  const Constraints constraints = one_mesh();
  const PerBlockSpace space(gpt3_175b(), constraints);
  const StageMesh& mesh = mesh_of(space);
  const Pipeline pipeline = space.pipelines(mesh).front();
  BlockPricer pricer(space);
  const MeshCosts costs = pricer.price(mesh);
  plan::Simulator simulator(space.homogeneous().base());
  PipelineBounds bounds(space, simulator);
  const PipelineBound bound = bounds.bound(mesh, pipeline, costs, kUntil, false);
  Drafter drafter(space, simulator, pricer.costs());
  std::int64_t simulated = 0;
  for (auto _ : state) {
    const auto draft = drafter.round(mesh, pipeline, costs, *bound.shares);
    simulated += drafter.improve(mesh, pipeline, costs, *draft, 300).simulated;
  }
  state.SetItemsProcessed(simulated);
}
BENCHMARK(draft_pipeline)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery::search
