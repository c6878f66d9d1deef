// SPDX-License-Identifier: Apache-2.0
// The per-block search against simulating every per-block plan of tiny spaces: random networks,
// machines, memory and batches; every cut, every strategy of every block.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "search/per_block/bound.hpp"
#include "search/per_block/capacity.hpp"
#include "search/per_block/search.hpp"
#include "tests/property/search/tiny_block_spaces.hpp"
#include "tests/unit/search/outcome_text.hpp"

namespace orrery::search {
namespace {

using Best = std::map<std::pair<std::size_t, std::size_t>, Seconds>;  // by mesh and pipeline

struct Everything {
  std::int64_t plans = 0;
  Best best;
};

Everything simulate_all(const PerBlockSpace& space) {
  Everything all;
  plan::Simulator simulator(space.homogeneous().base());
  for_every_plan(space, [&](std::size_t mesh, std::size_t pipeline, const plan::Plan& plan) {
    ++all.plans;
    plan::check_plan(plan, "enumerated");
    const plan::Simulation simulation = simulator.run(plan);
    if (!simulation.does_not_fit) {
      const auto [slot, is_new] = all.best.try_emplace({mesh, pipeline}, simulation.iteration_time);
      slot->second = std::min(slot->second, simulation.iteration_time);
    }
  });
  return all;
}

Seconds best_of(const Everything& all) {
  Seconds best = all.best.begin()->second;
  for (const auto& [place, time] : all.best) {
    best = std::min(best, time);
  }
  return best;
}

// Plans fit by their categories here: that is what is enumerated.
TEST(PerBlockProperty, EqualsSimulatingEverything) {
  EXPECT_TRUE(rc::check([] {
    const TinySpace tiny = any_space();
    Options options;
    options.jobs = pick({1, 2});
    options.replay_reserve = ByteCount(-(std::int64_t{64} << 30));
    options.constraints = tiny.constraints;
    const PerBlockSpace space(tiny.base, tiny.constraints);
    RC_PRE(!space.meshes().empty());
    const Everything all = simulate_all(space);
    RC_ASSERT(all.plans == space.size().exact);
    RC_PRE(all.plans > 0);  // schedules that join passes of experts are homogeneous only
    const PerBlockOutcome found = search_per_block(tiny.base, options);
    RC_ASSERT(found.outcome.plans == all.plans);
    RC_ASSERT(found.outcome.best.has_value() == !all.best.empty());
    if (found.outcome.best) {
      const Seconds time = found.outcome.best->simulation.iteration_time;
      RC_ASSERT(time == best_of(all));
      RC_ASSERT(found.outcome.gap_fraction == 0.0);
      RC_ASSERT(found.outcome.lower_bound == time);
      RC_ASSERT(found.homogeneous.value() == 0 || time <= found.homogeneous);
      RC_ASSERT(verify(*found.outcome.best).empty());
    }
  }));
}

// Where few plans leave the gap open: those that fit by their categories but not when replayed.
TEST(PerBlockProperty, WithinItsGapOfSimulatingEverything) {
  EXPECT_TRUE(rc::check([] {
    const TinySpace tiny = any_space();
    Options options;
    options.jobs = pick({1, 2});
    options.constraints = tiny.constraints;
    const PerBlockSpace space(tiny.base, tiny.constraints);
    RC_PRE(!space.meshes().empty());
    const Everything all = simulate_all(space);
    const PerBlockOutcome found = search_per_block(tiny.base, options);
    RC_PRE(found.outcome.best.has_value());
    const Seconds best = best_of(all);
    const Seconds time = found.outcome.best->simulation.iteration_time;
    RC_ASSERT(best <= time);
    RC_ASSERT(found.outcome.gap_fraction == 0.0);
    RC_ASSERT(verify(*found.outcome.best).empty());
  }));
}

// The embedding below the first adapters takes no gradient: a stage of it alone halves what crosses
// a slow link, which is most of the time here.
TEST(PerBlockProperty, NoGradientIsSentToTheFrozenEmbedding) {
  Shape shape;
  shape.spec = small_spec(2);
  shape.spec.adapters.rank = 16;
  shape.cluster = "dgx-a100:2";
  shape.overrides = {"node.gpus=1", "node.scale_out.nics=1",
                     "node.scale_out.nic_bandwidth=0.2 GB/s"};
  shape.batch = 1;
  Options options;
  options.constraints.fix("pp=2,cp=1,ep=1,tp=1,zero=1,recompute=none,schedule=1f1b");
  const plan::Plan base = base_plan(shape);
  const Everything all = simulate_all(PerBlockSpace(base, options.constraints));
  const Seconds best = best_of(all);
  const PerBlockOutcome found = search_per_block(base, options);
  ASSERT_TRUE(found.outcome.best);
  EXPECT_LE(found.outcome.lower_bound, best);
  EXPECT_EQ(found.outcome.best->simulation.iteration_time, best);
  EXPECT_EQ(found.outcome.best->plan.stage_blocks.front(), 1);
}

// Stopped after so many questions whether to, the search leaves a checkpoint from which it goes on
// to the answer of one that was not.
TEST(PerBlockProperty, GoesOnFromWhereItWasStopped) {
  const std::string path = testing::TempDir() + "per_block_property";
  EXPECT_TRUE(rc::check([&] {
    const TinySpace tiny = any_space();
    Options options;
    options.jobs = pick({1, 2});
    options.interval_draws = 0;
    options.constraints = tiny.constraints;
    RC_PRE(!PerBlockSpace(tiny.base, tiny.constraints).meshes().empty());
    const std::string whole = text_of(search_per_block(tiny.base, options));
    std::atomic<int> left = *rc::gen::inRange(0, 600);
    options.stop = [&left] { return left-- <= 0; };
    options.checkpoint = path;
    (void)search_per_block(tiny.base, options);
    options.stop = nullptr;
    options.resume = path;
    options.checkpoint.clear();
    options.jobs = pick({1, 2});
    RC_ASSERT(text_of(search_per_block(tiny.base, options)) == whole);
  }));
}

// Bounds of meshes and pipelines, asked for just above the best plan, well above it and far away,
// and those that go on from them.
TEST(PerBlockProperty, BoundsAreBelowEveryPlan) {
  EXPECT_TRUE(rc::check([] {
    const TinySpace tiny = any_space();
    const PerBlockSpace space(tiny.base, tiny.constraints);
    RC_PRE(!space.meshes().empty());
    const Everything all = simulate_all(space);
    plan::Simulator simulator(tiny.base);
    PipelineBounds bounds(space, simulator);
    BlockPricer pricer(space);
    for (const auto& [place, time] : all.best) {
      const StageMesh& mesh = space.meshes()[place.first];
      const Pipeline pipeline = space.pipelines(mesh)[place.second];
      const MeshCosts costs = pricer.price(mesh);
      const double share = static_cast<double>(space.micro_batches(mesh)) / mesh.pp;
      RC_ASSERT(pricer.least_work(mesh) * share <= time.value() * (1.0 + 1e-12));
      RC_ASSERT(capacity_bound(tiny.base.network, costs, pipeline, mesh.pp,
                               static_cast<double>(space.micro_batches(mesh))) <= time.value());
      RC_ASSERT(chain_bound(tiny.base.network, costs, pipeline) <= time.value());
      for (const double until : {time.value() * 1.0001, time.value() * 1.7, 1e3}) {
        RC_ASSERT(bounds.mesh_bound(mesh, costs, until) <= time.value());
        const int rounds = pick({0, 3, 40});
        const PipelineBound first = bounds.bound(mesh, pipeline, costs, until, rounds);
        RC_ASSERT(first.seconds <= time.value());
        PipelinePart part;
        part.paths = std::make_shared<const std::vector<PassPath>>(first.paths);
        const Shares* before = first.shares ? &*first.shares : nullptr;
        RC_ASSERT(bounds.bound(mesh, pipeline, costs, until, rounds, part, before).seconds <=
                  time.value());
      }
    }
  }));
}

}  // namespace
}  // namespace orrery::search
