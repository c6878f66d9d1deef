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
#include "search/per_block/split.hpp"
#include "tests/property/drawing.hpp"
#include "tests/unit/search/outcome_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

struct TinySpace {
  plan::Plan base;
  Constraints constraints;
};

// One strategy and every cut into several chunks of a device: more virtual stages than layers
// divide.
TinySpace any_cuts() {
  Shape shape;
  shape.spec = small_spec(pick({3, 4, 5, 6}));
  shape.spec.vocab = pick<std::int64_t>({1000, 32000});
  shape.cluster = "dgx-a100:1";
  shape.overrides = {"gpu.memory=80 GiB"};
  shape.batch = pick<std::int64_t>({4, 8});
  shape.sequence = 512;
  const auto [kind, gpus] =
      pick<std::pair<std::string, std::string>>({{"pp=2,chunks=2,schedule=interleaved", "2"},
                                                 {"pp=2,chunks=2,schedule=breadth-first", "2"},
                                                 {"pp=2,schedule=v-zb", "2"},
                                                 {"pp=4,schedule=1f1b", "4"},
                                                 {"pp=4,schedule=chimera", "4"},
                                                 {"pp=2,chunks=3,schedule=interleaved", "2"}});
  shape.overrides.push_back("node.gpus=" + gpus);
  TinySpace space;
  space.constraints.fix("cp=1,ep=1,tp=1,zero=1,recompute=none,micro_batch=1");
  space.constraints.fix(kind);
  space.base = base_plan(shape);
  return space;
}

// A few hundred plans: two or three strategies a block and cuts, or four strategies and none.
TinySpace any_space() {
  if (pick<int>({0, 1, 2, 3}) == 0) {
    return any_cuts();
  }
  Shape shape;
  shape.spec = pick<int>({0, 1, 2}) > 0 ? small_spec(2) : small_mixture();
  shape.spec.tied_embeddings = pick({false, true});
  shape.spec.vocab = pick<std::int64_t>({1000, 32000});  // the head as little or as several layers
  shape.spec.adapters.rank = pick<std::int64_t>({0, 0, 16});
  TinySpace space;
  space.constraints.fix("cp=1,ep=1");
  const int kind = pick<int>({0, 1, 2});
  if (kind == 0) {  // every ZeRO stage in one plan; what a step adds at its ends is large
    shape.cluster = pick<std::string>({"dgx-a100:1", "l40s-8:2", "hgx-h100:4"});
    shape.overrides = {"node.gpus=" + std::string(shape.cluster.back() == '1'   ? "4"
                                                  : shape.cluster.back() == '2' ? "2"
                                                                                : "1")};
    space.constraints.fix("pp=2,tp=1,recompute=none,micro_batch=1");
    space.constraints.fix(pick<std::string>({"schedule=1f1b", "schedule=gpipe", "schedule=zb-h1",
                                             "schedule=chimera", "schedule=dualpipe"}));
  } else if (kind == 1) {  // tp 1 and tp 2 in one plan
    shape.cluster = pick<std::string>({"dgx-a100:1", "l40s-8:1"});
    shape.overrides = {"node.gpus=4"};
    space.constraints.fix("pp=2,zero=1,recompute=none");
    space.constraints.fix(pick<std::string>({"schedule=1f1b", "schedule=gpipe", "schedule=zb-h1"}));
  } else {
    shape.cluster = pick<std::string>({"dgx-a100:1", "hgx-h100:2", "l40s-8:2"});
    const bool two_nodes = shape.cluster.back() == '2';
    shape.overrides = {two_nodes ? "node.gpus=1" : "node.gpus=2"};
    space.constraints.forbid("recompute=selective");
    space.constraints.fix(
        pick<std::string>({"pp=2,zero=1,schedule=1f1b", "pp=2,zero=0,schedule=zb-h2",
                           "pp=2,zero=1,schedule=chimera", "pp=2,zero=1,schedule=dualpipe",
                           "pp=2,zero=1,schedule=zb-1p", "pp=1,tp=1,micro_batch=1,recompute=full",
                           "pp=1,tp=1,zero=3", "pp=1,zero=1,recompute=none"}));
  }
  shape.overrides.push_back(pick<std::string>(
      {"gpu.memory=2200 MiB", "gpu.memory=2500 MiB", "gpu.memory=3 GiB", "gpu.memory=80 GiB"}));
  if (pick<int>({0, 1, 2}) == 0) {  // messages take as long as passes
    shape.overrides.push_back("node.scale_out.nic_bandwidth=0.2 GB/s");
  }
  shape.batch = pick<std::int64_t>({2, 4});
  shape.sequence = pick<std::int64_t>({512, 2048});
  space.base = base_plan(shape);
  space.base.execution.overlap_grad_reduce = pick({true, true, false});
  space.base.execution.overlap_param_gather = pick({true, true, false});
  return space;
}

// Every cut of the chain.
std::vector<std::vector<int>> cuts(int positions, int stages) {
  if (stages == 1) {
    return {{positions}};
  }
  std::vector<std::vector<int>> all;
  for (int first = 1; positions - first >= stages - 1; ++first) {
    for (std::vector<int> cut : cuts(positions - first, stages - 1)) {
      cut.insert(cut.begin(), first);
      all.push_back(std::move(cut));
    }
  }
  return all;
}

template <typename Each>
void for_every_plan(const PerBlockSpace& space, Each each) {
  const plan::Plan& base = space.homogeneous().base();
  plan::Plan plan = base;
  const std::size_t positions = base.network.chain.size();
  for (std::size_t mesh = 0; mesh < space.meshes().size(); ++mesh) {
    const StageMesh& shape = space.meshes()[mesh];
    const std::vector<plan::BlockPlan> strategies = space.strategies(shape);
    const std::vector<Pipeline> pipelines = space.pipelines(shape);
    for (std::size_t pipeline = 0; pipeline < pipelines.size(); ++pipeline) {
      const int stages = shape.pp * pipelines[pipeline].chunks;
      for (const std::vector<int>& cut : cuts(static_cast<int>(positions), stages)) {
        Draft draft{cut, std::vector<std::uint16_t>(positions, 0)};
        for (bool more = true; more;) {
          space.configure(shape, pipelines[pipeline], strategies, draft, plan);
          each(mesh, pipeline, plan);
          more = false;
          for (std::uint16_t& strategy : draft.strategies) {  // counts up, position by position
            if (++strategy < strategies.size()) {
              more = true;
              break;
            }
            strategy = 0;
          }
        }
      }
    }
  }
}

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

TEST(PerBlockProperty, WithinItsGapOfSimulatingEverything) {
  EXPECT_TRUE(rc::check([] {
    const TinySpace tiny = any_space();
    Options options;
    options.jobs = pick({1, 2});
    options.constraints = tiny.constraints;
    const PerBlockSpace space(tiny.base, tiny.constraints);
    RC_PRE(!space.meshes().empty());
    const Everything all = simulate_all(space);
    RC_ASSERT(all.plans == space.size().exact);
    RC_PRE(all.plans > 0);  // schedules that join passes of experts are homogeneous only
    const PerBlockOutcome found = search_per_block(tiny.base, options);
    RC_ASSERT(found.outcome.plans == all.plans);
    if (!found.outcome.best) {
      return;  // nothing fits, or only mixtures that were not found
    }
    RC_ASSERT(!all.best.empty());
    Seconds best = all.best.begin()->second;
    for (const auto& [place, time] : all.best) {
      best = std::min(best, time);
    }
    const Seconds time = found.outcome.best->simulation.iteration_time;
    RC_ASSERT(best <= time);
    RC_ASSERT(found.outcome.lower_bound <= best);
    RC_ASSERT(time.value() * (1.0 - found.outcome.gap_fraction) <= best.value() * (1.0 + 1e-12));
    RC_ASSERT(found.homogeneous.value() == 0 || time <= found.homogeneous);
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
  Seconds best = all.best.begin()->second;
  for (const auto& [place, time] : all.best) {
    best = std::min(best, time);
  }
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

// `cut` counts blocks: those of the first and the last stage that are no layers are not counted
// where layers are.
bool holds(const std::vector<StageRange>& ranges, const std::vector<int>& cut) {
  const auto layers = [&](std::size_t stage) {
    return cut[stage] - (stage == 0 ? 1 : 0) - (stage + 1 == cut.size() ? 1 : 0);
  };
  return std::all_of(ranges.begin(), ranges.end(), [&](const StageRange& range) {
    const std::vector<std::size_t>& stages = range.stages;
    if (range.of == StageRange::Of::Each) {
      return std::all_of(stages.begin(), stages.end(),
                         [&](std::size_t stage) { return layers(stage) <= range.most; });
    }
    if (range.of == StageRange::Of::One) {
      return std::any_of(stages.begin(), stages.end(),
                         [&](std::size_t stage) { return layers(stage) >= range.least; });
    }
    int blocks = 0;
    for (const std::size_t stage : stages) {
      blocks += cut[stage];
    }
    return range.least <= blocks && blocks <= range.most;
  });
}

// Halves of a pipeline, of one of them, and so on: every plan of what was split is in one of both,
// and none is below the bound of its half.
TEST(PerBlockProperty, PartsBoundTheirPlans) {
  int splits = 0;
  int peaks = 0;
  EXPECT_TRUE(rc::check([&] {
    const TinySpace tiny = any_cuts();
    const PerBlockSpace space(tiny.base, tiny.constraints);
    RC_PRE(!space.meshes().empty());
    std::map<std::pair<std::size_t, std::size_t>, std::map<std::vector<int>, Seconds>> times;
    plan::Simulator simulator(tiny.base);
    for_every_plan(space, [&](std::size_t mesh, std::size_t pipeline, const plan::Plan& plan) {
      const Seconds time = simulator.run(plan).iteration_time;
      const auto [slot, is_new] = times[{mesh, pipeline}].try_emplace(plan.stage_blocks, time);
      slot->second = std::min(slot->second, time);
    });
    PipelineBounds bounds(space, simulator);
    BlockPricer pricer(space);
    for (const auto& [place, of_cut] : times) {
      const StageMesh& mesh = space.meshes()[place.first];
      const Pipeline pipeline = space.pipelines(mesh)[place.second];
      const MeshCosts costs = pricer.price(mesh);
      Seconds best = of_cut.begin()->second;
      for (const auto& [cut, time] : of_cut) {
        best = std::min(best, time);
      }
      const double until = best.value() * pick({1.0001, 1.1, 2.0});
      PipelinePart part;
      PipelineBound bound = bounds.bound(mesh, pipeline, costs, until, 20);
      for (int depth = 0; depth < 6 && bound.shares; ++depth) {
        part.paths = std::make_shared<const std::vector<PassPath>>(bound.paths);
        const auto halves =
            split_part(*bound.shares, pipeline, tiny.base.network, space.micro_batches(mesh),
                       part.ranges, [&] { return bounds.knows_peaks(mesh, pipeline, costs); });
        if (halves.empty()) {
          break;
        }
        ++splits;
        peaks += halves.front().front().of == StageRange::Of::One ? 1 : 0;
        const Shares before = *bound.shares;
        const std::size_t goes_on = pick<std::size_t>({0, 1});
        std::vector<PipelineBound> of_half;
        for (const std::vector<StageRange>& ranges : halves) {
          PipelinePart half = part;
          half.ranges = ranges;
          of_half.push_back(bounds.bound(mesh, pipeline, costs, until, 20, half, &before));
        }
        for (const auto& [cut, time] : of_cut) {
          RC_ASSERT(!holds(part.ranges, cut) ||
                    holds(halves.front(), cut) != holds(halves.back(), cut));
          for (std::size_t half = 0; half < halves.size(); ++half) {
            RC_ASSERT(!holds(halves[half], cut) || of_half[half].seconds <= time.value() ||
                      (time.value() >= until && of_half[half].seconds <= until));
          }
        }
        part.ranges = halves[goes_on];
        bound = std::move(of_half[goes_on]);
      }
    }
  }));
  EXPECT_GT(splits, 50);
  EXPECT_GT(peaks, 5);
}

}  // namespace
}  // namespace orrery::search
