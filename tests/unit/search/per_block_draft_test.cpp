// SPDX-License-Identifier: Apache-2.0
// Neighbours of drafts.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "search/per_block/annealed.hpp"
#include "search/per_block/tools.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

constexpr int kEnough = 2000;  // simulations: none of these searches runs out of them

// Of a pipeline with one strategy, from the usual cut: neighbours of the busiest and lightest
// devices, then of all.
struct Improved {
  DraftResult likely;
  DraftResult any;
};

Improved improved(std::int64_t layers, const std::string& fixes) {
  const plan::Plan base = base_plan(
      Shape{.spec = small_spec(layers), .overrides = {"node.gpus=8", "gpu.memory=80 GiB"}});
  const Constraints constraints =
      fixed("tp=1,cp=1,pp=8,micro_batch=1,zero=1,recompute=none," + fixes);
  const PerBlockSpace space(base, constraints);
  PerBlockTools tools(space);
  const StageMesh& mesh = space.meshes().front();
  const Pipeline pipeline = space.pipelines(mesh).front();
  const MeshCosts costs = tools.pricer.price(mesh);
  Draft draft;
  draft.stages = space.first_cut(mesh, pipeline);
  draft.strategies.assign(base.network.chain.size(), 0);
  Improved result;
  result.likely = tools.drafter.improve(mesh, pipeline, costs, draft, kEnough);
  result.any = tools.drafter.improve(mesh, pipeline, costs, result.likely.draft, kEnough,
                                     Drafter::Moves::Any);
  return result;
}

// A move between two stages of which neither is on a busiest device can be the one that is missing.
TEST(PerBlockDraft, MovesBetweenAnyStagesFindMore) {
  int faster = 0;
  for (const std::int64_t layers : {17, 19, 21, 23}) {
    for (const char* schedule : {"v-zb", "interleaved"}) {
      const Improved result = improved(layers, std::string("chunks=2,schedule=") + schedule);
      ASSERT_TRUE(result.likely.fits && result.any.fits);
      EXPECT_LT(result.likely.simulated, kEnough);
      EXPECT_LE(result.any.time, result.likely.time) << layers << " " << schedule;
      const std::vector<int>& cut = result.any.draft.stages;
      EXPECT_EQ(std::accumulate(cut.begin(), cut.end(), 0),
                static_cast<int>(result.any.draft.strategies.size()));
      faster += result.any.time < result.likely.time ? 1 : 0;
    }
  }
  EXPECT_GT(faster, 0);
}

// A cut that is fixed stays.
TEST(PerBlockDraft, AFixedCutStays) {
  const Improved result = improved(19, "chunks=2,schedule=v-zb,stages=balanced");
  ASSERT_TRUE(result.any.fits);
  EXPECT_EQ(result.any.draft.stages, result.likely.draft.stages);
}

// Of few blocks none alone is faster with another of its strategies.
TEST(PerBlockDraft, NoSingleBlockOfFewCanBeFaster) {
  const plan::Plan base = base_plan(Shape{.spec = small_spec(2),
                                          .cluster = "l40s-8:1",
                                          .overrides = {"node.gpus=2"},
                                          .batch = 4,
                                          .sequence = 1024});
  const Constraints constraints = fixed("pp=1,schedule=1f1b,micro_batch=2");
  const PerBlockSpace space(base, constraints);
  PerBlockTools tools(space);
  for (const StageMesh& mesh : space.meshes()) {
    const Pipeline pipeline = space.pipelines(mesh).front();
    const MeshCosts costs = tools.pricer.price(mesh);
    Draft draft;
    draft.stages = space.first_cut(mesh, pipeline);
    draft.strategies.assign(base.network.chain.size(), costs.shared.front());
    const DraftResult result = tools.drafter.improve(mesh, pipeline, costs, draft, kEnough);
    ASSERT_TRUE(result.fits);
    EXPECT_LT(result.simulated, kEnough);
    for (std::size_t position = 0; position < base.network.chain.size(); ++position) {
      const auto kind = static_cast<std::size_t>(base.network.chain[position]);
      for (const BlockChoice& choice : costs.choices[kind]) {
        Draft other = result.draft;
        other.strategies[position] = choice.strategy;
        const DraftResult alone = tools.drafter.improve(mesh, pipeline, costs, other, 0);
        EXPECT_TRUE(!alone.fits || alone.time >= result.time) << position;
      }
    }
  }
}

// With sequence parallelism a block is slower and hands on half as much: over a slow network the
// last block of every stage has it, and no other.
TEST(PerBlockDraft, TheLastBlockOfAStageHandsOnLittle) {
  const plan::Plan base =
      base_plan(Shape{.spec = small_spec(16),
                      .cluster = "dgx-a100:4",
                      .overrides = {"node.gpus=2", "gpu.memory=80 GiB", "node.scale_out.nics=1",
                                    "node.scale_out.nic_bandwidth=10 GB/s"}});
  const Constraints constraints =
      fixed("tp=2,cp=1,pp=4,micro_batch=1,zero=1,recompute=none,schedule=1f1b");
  const PerBlockSpace space(base, constraints);
  PerBlockTools tools(space);
  const StageMesh& mesh = space.meshes().front();
  const Pipeline pipeline = space.pipelines(mesh).front();
  const MeshCosts costs = tools.pricer.price(mesh);
  ASSERT_EQ(costs.shared.size(), 2U);
  for (const std::uint16_t strategy : costs.shared) {
    Draft draft;
    draft.stages = space.first_cut(mesh, pipeline);
    draft.strategies.assign(base.network.chain.size(), strategy);
    const DraftResult result = tools.drafter.improve(mesh, pipeline, costs, draft, kEnough);
    ASSERT_TRUE(result.fits);
    std::size_t position = 0;
    for (std::size_t stage = 0; stage < result.draft.stages.size(); ++stage) {
      for (int left = result.draft.stages[stage]; left > 0; --left, ++position) {
        const bool hands_on = left == 1 && stage + 1 < result.draft.stages.size();
        EXPECT_EQ(costs.strategies[result.draft.strategies[position]].sequence_parallel, hands_on)
            << stage << " " << left;
      }
    }
  }
}

// A pipeline whose stages take two GPUs each, and what all its neighbours lead to.
struct Annealed {
  explicit Annealed(std::int64_t layers, const std::string& memory = "80 GiB",
                    const std::string& fixes = "")
      : base(base_plan(Shape{.spec = small_spec(layers),
                             .overrides = {"node.gpus=8", "gpu.memory=" + memory},
                             .batch = 16})),
        constraints(fixed("pp=4,micro_batch=1,schedule=v-zb,chunks=2" + fixes)),
        space(base, constraints),
        tools(space),
        mesh(space.meshes().front()),
        pipeline(space.pipelines(mesh).front()),
        costs(tools.pricer.price(mesh)) {
    Draft draft;
    draft.stages = space.first_cut(mesh, pipeline);
    draft.strategies.assign(base.network.chain.size(), costs.shared.front());
    climbed = tools.drafter.improve(mesh, pipeline, costs, draft, kEnough);
    climbed =
        tools.drafter.improve(mesh, pipeline, costs, climbed.draft, kEnough, Drafter::Moves::Any);
  }
  DraftResult anneal(const Draft& draft, std::uint64_t seed = 1) {
    return tools.drafter.anneal(mesh, pipeline, costs, draft, costs.shared, seed,
                                [] { return false; });
  }
  std::vector<plan::StageMemory> memory(const Draft& draft) {
    plan::Plan plan = base;
    space.configure(mesh, pipeline, costs.strategies, draft, plan);
    return tools.simulator.memory(plan);
  }
  const plan::Plan base;
  const Constraints constraints;
  const PerBlockSpace space;
  PerBlockTools tools;
  const StageMesh mesh;
  const Pipeline pipeline;
  const MeshCosts costs;
  DraftResult climbed;
};

// Where no neighbour is faster, one that is a little slower leads on; and always to the same plan.
TEST(PerBlockDraft, SlowerNeighboursLeadToFasterPlans) {
  int faster = 0;
  int unlike = 0;
  for (const std::int64_t layers : {13, 15, 17, 19}) {
    Annealed search(layers);
    ASSERT_TRUE(search.climbed.fits);
    const DraftResult result = search.anneal(search.climbed.draft);
    ASSERT_TRUE(result.fits);
    EXPECT_LE(result.time, search.climbed.time) << layers;
    EXPECT_EQ(std::accumulate(result.draft.stages.begin(), result.draft.stages.end(), 0),
              static_cast<int>(search.base.network.chain.size()));
    const DraftResult again =
        search.tools.drafter.improve(search.mesh, search.pipeline, search.costs, result.draft, 0);
    EXPECT_EQ(again.time, result.time) << layers;
    EXPECT_EQ(search.anneal(search.climbed.draft).draft, result.draft) << layers;
    faster += result.time < search.climbed.time ? 1 : 0;
    unlike += search.anneal(search.climbed.draft, 2).draft != result.draft ? 1 : 0;
  }
  EXPECT_GT(faster, 0);
  EXPECT_GT(unlike, 0);
}

PerBlockDone drafted(int stages, double seconds, bool fits = true) {
  PerBlockDone done;
  done.draft = DraftResult{{{stages}, {}}, fits, Seconds(seconds), ByteCount(), 10};
  return done;
}

// The best draft alone, and only where it is faster than all plans; what is found has to fit and to
// be faster than the draft. All that was simulated counts.
TEST(PerBlockDraft, TheBestDraftIsAnnealedSeveralTimes) {
  const Annealed search(13);
  const std::vector<PerBlockNode> batch(4);
  const std::vector<PerBlockDone> answers = {
      drafted(1, 3.0), drafted(2, 2.0), {}, drafted(4, 1.0, false)};
  std::vector<PerBlockWork> asked;
  std::vector<double> found;  // seconds by seed; negative: does not fit
  const AskWorks ask = [&](const std::vector<PerBlockWork>& works) {
    asked = works;
    std::vector<PerBlockDone> done;
    for (std::size_t chain = 0; chain < works.size(); ++chain) {
      const double seconds = chain < found.size() ? found[chain] : 9.0;
      done.push_back(drafted(7 + static_cast<int>(chain), std::abs(seconds), seconds > 0));
    }
    return done;
  };
  const auto annealed = [&](double best, std::vector<double> seconds) {
    std::vector<PerBlockDone> done = answers;
    asked.clear();
    found = std::move(seconds);
    anneal_best(batch, done, best, search.space, ask);
    EXPECT_EQ(done[0].draft->draft, answers[0].draft->draft);
    EXPECT_EQ(done[3].draft->draft, answers[3].draft->draft);
    return *done[1].draft;
  };
  EXPECT_EQ(annealed(2.0, {1.0}).simulated, 10);
  EXPECT_TRUE(asked.empty());
  EXPECT_EQ(annealed(2.5, {1.9, 1.8}).time, Seconds(1.8));
  ASSERT_GT(asked.size(), 1U);
  EXPECT_EQ(asked.front().task, PerBlockTask::Anneal);
  EXPECT_EQ(asked.front().draft, answers[1].draft->draft);
  EXPECT_EQ(asked.front().best, 2.0);
  EXPECT_NE(asked.front().seed, asked.back().seed);
  const DraftResult none = annealed(2.5, {-1.0, 2.1});
  EXPECT_EQ(none.draft, answers[1].draft->draft);
  EXPECT_EQ(none.time, Seconds(2.0));
  EXPECT_EQ(none.simulated, 10 + 10 * static_cast<std::int64_t>(asked.size()));
}

TEST(PerBlockDraft, SlowerNeighboursKeepAFixedCut) {
  Annealed search(15, "80 GiB", ",stages=even");
  ASSERT_TRUE(search.climbed.fits);
  EXPECT_EQ(search.anneal(search.climbed.draft).draft.stages, search.climbed.draft.stages);
}

TEST(PerBlockDraft, NoNeighbourIsTriedOnceItIsToStop) {
  Annealed search(15);
  const DraftResult result =
      search.tools.drafter.anneal(search.mesh, search.pipeline, search.costs, search.climbed.draft,
                                  search.costs.shared, 1, [] { return true; });
  EXPECT_EQ(result.draft, search.climbed.draft);
  EXPECT_EQ(result.simulated, 1);
}

// What a device takes beyond its categories is left free there, and a draft that does not is led to
// one that does.
TEST(PerBlockDraft, EveryDeviceLeavesItsMarginFree) {
  Annealed search(15, "4 GiB");
  ASSERT_TRUE(search.climbed.fits);
  const ByteCount capacity = search.base.cluster.gpu.memory - search.base.memory_reserve;
  const ByteCount taken = search.memory(search.climbed.draft).front().total();
  const ByteCount margin = capacity - taken + ByteCount(std::int64_t{1} << 20);
  search.tools.drafter.leave_free_on_each({margin});
  const DraftResult result = search.anneal(search.climbed.draft);
  ASSERT_TRUE(result.fits);
  EXPECT_LE(search.memory(result.draft).front().total() + margin, capacity);
}

}  // namespace
}  // namespace orrery::search
