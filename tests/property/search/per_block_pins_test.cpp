// SPDX-License-Identifier: Apache-2.0
// Bounds of the per-block search against single plans of long stages: the cut is given and every
// kind of block has the strategies of the plan only, so that nothing hides a bound that is too
// high.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "search/per_block/bound.hpp"
#include "tests/property/drawing.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

struct LongStages {
  plan::Plan base;
  std::string fixed;
};

LongStages any_long_stages() {
  Shape shape;
  shape.spec = pick<int>({0, 1, 2}) > 0 ? small_spec() : small_mixture();
  shape.spec.layers = pick<std::int64_t>({6, 12, 24, 32});
  shape.spec.vocab = pick<std::int64_t>({512, 32000});
  shape.spec.tied_embeddings = pick({false, true});
  const std::string gpus = pick<std::string>({"1", "2", "4"});
  shape.cluster = pick<std::string>({"dgx-a100:4", "hgx-h100:4"});
  shape.overrides = {"node.gpus=" + gpus, "gpu.memory=1000 GiB", "node.scale_out.nics=1",
                     "node.scale_out.nic_bandwidth=" +
                         pick<std::string>({"1 GB/s", "4 GB/s", "16 GB/s", "64 GB/s"})};
  shape.batch = pick<std::int64_t>({16, 32, 64});
  shape.sequence = pick<std::int64_t>({512, 2048});
  LongStages stages;
  stages.base = base_plan(shape);
  stages.base.precision = pick({DType::Fp16, DType::Bf16});
  stages.base.execution.overlap_grad_reduce = pick({true, true, true, false});
  stages.base.execution.overlap_param_gather = pick({true, false});
  stages.fixed =
      "cp=1,ep=1,micro_batch=1," +
      pick<std::string>({"pp=1", "pp=2,schedule=1f1b", "pp=2,schedule=gpipe", "pp=2,schedule=zb-h1",
                         "pp=2,schedule=zb-h2", "pp=2,schedule=v-zb", "pp=2,schedule=v-half",
                         "pp=2,schedule=v-min", "pp=2,schedule=interleaved,chunks=2",
                         "pp=2,schedule=chimera", "pp=2,schedule=hanayo,chunks=2",
                         "pp=4,schedule=1f1b", "pp=4,schedule=zb-h1", "pp=4,schedule=v-zb"}) +
      pick<std::string>({",tp=1,recompute=none", ",zero=1", ",recompute=none", ""});
  return stages;
}

std::vector<int> any_cut(int positions, std::size_t stages) {
  std::vector<int> cut(stages, 1);
  for (int left = positions - static_cast<int>(stages); left > 0; --left) {
    ++cut[static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(stages)))];
  }
  return cut;
}

// Every kind of block with few strategies; which one a block takes is drawn.
Draft any_draft(const PerBlockSpace& space, const StageMesh& mesh, const Pipeline& pipeline,
                const std::vector<int>& chain, MeshCosts& costs) {
  const int positions = static_cast<int>(chain.size());
  Draft draft{pick({true, false}) ? space.first_cut(mesh, pipeline)
                                  : any_cut(positions, virtual_stages(mesh, pipeline)),
              {}};
  std::vector<std::vector<std::uint16_t>> few(costs.choices.size());
  for (std::size_t kind = 0; kind < few.size(); ++kind) {
    for (int count = pick({1, 1, 2, 3}); count > 0 && !costs.choices[kind].empty(); --count) {
      const auto& choices = costs.choices[kind];
      few[kind].push_back(
          choices[static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(choices.size())))]
              .strategy);
    }
    std::erase_if(costs.choices[kind], [&](const BlockChoice& choice) {
      return std::find(few[kind].begin(), few[kind].end(), choice.strategy) == few[kind].end();
    });
  }
  for (const int kind : chain) {
    const auto& choices = few[static_cast<std::size_t>(kind)];
    draft.strategies.push_back(
        choices[static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(choices.size())))]);
  }
  return draft;
}

TEST(PerBlockPins, BoundsAreBelowThePlan) {
  int tight = 0;
  EXPECT_TRUE(rc::check([&] {
    const LongStages stages = any_long_stages();
    const Constraints constraints = fixed(stages.fixed);
    const PerBlockSpace space(stages.base, constraints);
    RC_PRE(!space.meshes().empty());
    const StageMesh& mesh = space.meshes()[static_cast<std::size_t>(
        *rc::gen::inRange(0, static_cast<int>(space.meshes().size())))];
    const std::vector<Pipeline> pipelines = space.pipelines(mesh);
    RC_PRE(!pipelines.empty());
    const Pipeline& pipeline = pipelines.front();
    RC_PRE(virtual_stages(mesh, pipeline) <= stages.base.network.chain.size());
    MeshCosts costs = BlockPricer(space).price(mesh);
    const Draft draft = any_draft(space, mesh, pipeline, stages.base.network.chain, costs);
    plan::Plan plan = stages.base;
    space.configure(mesh, pipeline, costs.strategies, draft, plan);
    plan::Simulator simulator(stages.base);
    const plan::Simulation simulation = simulator.run(plan);
    RC_PRE(!simulation.does_not_fit);
    const double time = simulation.iteration_time.value();
    const double bound = PipelineBounds(space, simulator)
                             .bound(mesh, pipeline, costs, 1.5 * time, 40, with_cut(draft.stages))
                             .seconds;
    RC_ASSERT(bound <= time);
    tight += bound > 0.98 * time ? 1 : 0;
  }));
  EXPECT_GT(tight, 20);
}

}  // namespace
}  // namespace orrery::search
