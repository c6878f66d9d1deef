// SPDX-License-Identifier: Apache-2.0
// What data-parallel traffic adds to passes and to the end of a step, as the bounds of the
// per-block search say it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "search/per_block/bound.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// Four GPUs, one a node, behind slow adapters.
Shape slow_adapters(const std::string& bandwidth, std::int64_t layers, std::int64_t batch) {
  Shape shape;
  shape.spec = small_spec(layers);
  shape.batch = batch;
  shape.cluster = "dgx-a100:4";
  shape.overrides = {"node.gpus=1", "gpu.memory=80 GiB", "node.scale_out.nics=1",
                     "node.scale_out.nic_bandwidth=" + bandwidth};
  return shape;
}

// Under ZeRO-2 parameters are gathered once a step as under ZeRO-1, the reductions of every pass
// are in the queue of the last backward, and those of a cut backward run beside its weight
// gradients.
TEST(PerBlockTraffic, BoundsCountTheTrafficOfZero2) {
  const plan::Plan base = base_plan(slow_adapters("2 GB/s", 8, 8));
  for (const auto& [schedule, share] : {std::pair("1f1b", 0.9), std::pair("zb-h1", 0.84)}) {
    const Constraints constraints = fixed(
        std::string("pp=2,tp=1,cp=1,recompute=none,micro_batch=1,zero=2,schedule=") + schedule);
    const PerBlockSpace space(base, constraints);
    const StageMesh& mesh = space.meshes().front();
    const Pipeline pipeline = space.pipelines(mesh).front();
    const MeshCosts costs = BlockPricer(space).price(mesh);
    Draft draft{space.first_cut(mesh, pipeline), {}};
    draft.strategies.assign(base.network.chain.size(), 0);
    plan::Plan plan = base;
    space.configure(mesh, pipeline, costs.strategies, draft, plan);
    plan::Simulator simulator(base);
    const double time = simulator.run(plan).iteration_time.value();
    const PipelinePart part = with_cut(draft.stages);
    const double bound =
        PipelineBounds(space, simulator).bound(mesh, pipeline, costs, 1.5 * time, 20, part).seconds;
    EXPECT_LE(bound, time) << schedule;
    EXPECT_GE(bound, share * time) << schedule;
  }
}

// Six faster strategies that hand on more do not hide what the seventh one takes to hand on: under
// sequence parallelism a rank sends its own tokens alone.
TEST(PerBlockTraffic, BoundsCountTheTransfersOfSlowerStrategies) {
  Shape shape = slow_adapters("0.5 GB/s", 8, 8);
  shape.cluster = "dgx-a100:2";
  shape.overrides.front() = "node.gpus=2";
  const plan::Plan base = base_plan(shape);
  const Constraints constraints =
      fixed("pp=2,tp=2,cp=1,recompute=none,micro_batch=1,schedule=1f1b");
  const PerBlockSpace space(base, constraints);
  const StageMesh& mesh = space.meshes().front();
  const Pipeline pipeline = space.pipelines(mesh).front();
  MeshCosts costs = BlockPricer(space).price(mesh);
  std::uint16_t strategy = 0;
  while (!costs.strategies[strategy].sequence_parallel) {
    ++strategy;
  }
  for (std::vector<BlockChoice>& choices : costs.choices) {
    const BlockChoice most = *std::max_element(
        choices.begin(), choices.end(),
        [](const auto& one, const auto& other) { return one.boundary < other.boundary; });
    choices.insert(choices.begin(), 6, most);
  }
  Draft draft{space.first_cut(mesh, pipeline), {}};
  draft.strategies.assign(base.network.chain.size(), strategy);
  plan::Plan plan = base;
  space.configure(mesh, pipeline, costs.strategies, draft, plan);
  plan::Simulator simulator(base);
  const double time = simulator.run(plan).iteration_time.value();
  PipelinePart part = with_cut(draft.stages);
  for (std::size_t stage = 0; stage < draft.stages.size(); ++stage) {
    const int blocks = draft.stages[stage];
    part.ranges.push_back({{stage}, blocks, blocks, StageRange::Of::Strategies, {strategy}});
  }
  const double bound =
      PipelineBounds(space, simulator).bound(mesh, pipeline, costs, 1.5 * time, 20, part).seconds;
  EXPECT_LE(bound, time);
  EXPECT_GE(bound, 0.9 * time);
}

// Leaves a kind of block the strategies of one ZeRO stage: the fastest of them, if there is any.
std::optional<std::uint16_t> leave_stage(MeshCosts& costs, int kind, int zero_stage) {
  std::vector<BlockChoice>& choices = costs.choices[static_cast<std::size_t>(kind)];
  std::erase_if(choices, [&](const BlockChoice& choice) {
    return costs.strategies[choice.strategy].zero_stage != zero_stage;
  });
  return choices.empty() ? std::nullopt : std::optional(choices.front().strategy);
}

// Embedding and head of that ZeRO stage, the layers of ZeRO-1.
std::optional<Draft> mixed_draft(const PerBlockSpace& space, const StageMesh& mesh,
                                 const Pipeline& pipeline, const std::vector<int>& chain,
                                 int zero_stage, MeshCosts& costs) {
  Draft draft{space.first_cut(mesh, pipeline), {}};
  for (const int kind : chain) {
    const bool end = kind == chain.front() || kind == chain.back();
    const auto strategy = leave_stage(costs, kind, end ? zero_stage : 1);
    if (!strategy) {
      return std::nullopt;
    }
    draft.strategies.push_back(*strategy);
  }
  return draft;
}

// Reductions of every pass and those of the step are in one queue, of a backward that is cut beside
// its weight gradients.
void expect_bound_of_mixed_stages(const std::string& schedule, const std::string& bandwidth,
                                  int zero_stage) {
  SCOPED_TRACE(schedule + ", " + bandwidth + ", ZeRO-" + std::to_string(zero_stage));
  Shape shape = slow_adapters(bandwidth, 32, 4);
  shape.spec.vocab = 512;  // so that little is reduced in every pass
  const plan::Plan base = base_plan(shape);
  const Constraints constraints =
      fixed("pp=2,tp=1,cp=1,recompute=none,micro_batch=1,schedule=" + schedule);
  const PerBlockSpace space(base, constraints);
  const StageMesh& mesh = space.meshes().front();
  const Pipeline pipeline = space.pipelines(mesh).front();
  MeshCosts costs = BlockPricer(space).price(mesh);
  const auto draft = mixed_draft(space, mesh, pipeline, base.network.chain, zero_stage, costs);
  ASSERT_TRUE(draft);
  plan::Plan plan = base;
  space.configure(mesh, pipeline, costs.strategies, *draft, plan);
  plan::Simulator simulator(base);
  const double time = simulator.run(plan).iteration_time.value();
  const double bound = PipelineBounds(space, simulator)
                           .bound(mesh, pipeline, costs, 1.5 * time, 40, with_cut(draft->stages))
                           .seconds;
  EXPECT_LE(bound, time);
  EXPECT_GE(bound, 0.6 * time);
}

TEST(PerBlockTraffic, MixedStagesReduceInOneQueue) {
  for (const char* schedule : {"1f1b", "zb-h1", "zb-h2"}) {
    for (const char* bandwidth : {"8 GB/s", "32 GB/s", "128 GB/s"}) {
      for (const int zero_stage : {2, 3}) {
        expect_bound_of_mixed_stages(schedule, bandwidth, zero_stage);
      }
    }
  }
}

}  // namespace
}  // namespace orrery::search
