// SPDX-License-Identifier: Apache-2.0
// Parts of pipelines of the per-block search against every plan of tiny spaces: what a split halves
// is in one of both, and no plan is below the bound of its half.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "search/per_block/bound.hpp"
#include "search/per_block/split.hpp"
#include "tests/property/search/tiny_block_spaces.hpp"

namespace orrery::search {
namespace {

// A plan with the strategy of every position of the chain.
struct Timed {
  std::vector<int> cut;
  std::vector<std::uint16_t> strategies;
  Seconds time;
};

std::vector<std::uint16_t> strategies_of(const plan::Plan& plan, const MeshCosts& costs) {
  std::vector<std::uint16_t> strategies;
  for (const plan::BlockRun& run : plan.blocks) {
    const auto found = std::find(costs.strategies.begin(), costs.strategies.end(), run.layout);
    const auto index = static_cast<std::uint16_t>(found - costs.strategies.begin());
    strategies.insert(strategies.end(), static_cast<std::size_t>(run.count), index);
  }
  return strategies;
}

// Programs know other strategies by one that beats them.
bool are_choices(const Timed& plan, const std::vector<int>& chain, const MeshCosts& costs) {
  for (std::size_t position = 0; position < chain.size(); ++position) {
    const auto& choices = costs.choices[static_cast<std::size_t>(chain[position])];
    if (std::none_of(choices.begin(), choices.end(), [&](const BlockChoice& choice) {
          return choice.strategy == plan.strategies[position];
        })) {
      return false;
    }
  }
  return true;
}

int blocks_within(const StageRange& range, const Timed& plan) {
  int blocks = 0;
  std::size_t position = 0;
  for (std::size_t stage = 0; stage < plan.cut.size(); ++stage) {
    const bool counts =
        std::find(range.stages.begin(), range.stages.end(), stage) != range.stages.end();
    for (int block = 0; block < plan.cut[stage]; ++block, ++position) {
      const bool is_meant =
          range.of != StageRange::Of::Strategies || range.has(plan.strategies[position]);
      blocks += counts && is_meant ? 1 : 0;
    }
  }
  return blocks;
}

// Those blocks of the first and the last stage that are no layers are not counted where layers are.
bool holds(const std::vector<StageRange>& ranges, const Timed& plan) {
  const std::vector<int>& cut = plan.cut;
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
    const int blocks = blocks_within(range, plan);
    return range.least <= blocks && blocks <= range.most;
  });
}

// Halves of a pipeline, of one of them, and so on: every plan of what was split is in one of both,
// and none is below the bound of its half.
TEST(PerBlockProperty, PartsBoundTheirPlans) {
  int splits = 0;
  int peaks = 0;
  int by_strategy = 0;
  EXPECT_TRUE(rc::check([&] {
    const TinySpace tiny = pick<int>({0, 1}) == 0 ? any_cuts() : any_space();
    const PerBlockSpace space(tiny.base, tiny.constraints);
    RC_PRE(!space.meshes().empty());
    std::map<std::pair<std::size_t, std::size_t>, std::vector<Timed>> times;
    plan::Simulator simulator(tiny.base);
    PricedMeshes priced(space);
    BlockPricer pricer(space);
    for_every_plan(space, [&](std::size_t mesh, std::size_t pipeline, const plan::Plan& plan) {
      const plan::Simulation simulation = simulator.run(plan);
      if (!simulation.does_not_fit) {
        const MeshCosts& costs = priced.of(static_cast<std::uint32_t>(mesh), pricer);
        times[{mesh, pipeline}].push_back(
            {plan.stage_blocks, strategies_of(plan, costs), simulation.iteration_time});
      }
    });
    PipelineBounds bounds(space, simulator);
    for (const auto& [place, plans] : times) {
      const StageMesh& mesh = space.meshes()[place.first];
      const Pipeline pipeline = space.pipelines(mesh)[place.second];
      const MeshCosts& costs = priced.of(static_cast<std::uint32_t>(place.first), pricer);
      std::vector<Timed> within;  // what the halves bound
      Seconds best = plans.front().time;
      for (const Timed& plan : plans) {
        best = std::min(best, plan.time);
        if (are_choices(plan, tiny.base.network.chain, costs)) {
          within.push_back(plan);
        }
      }
      const double until = best.value() * pick({1.0001, 1.1, 2.0});
      PipelinePart part;
      PipelineBound bound = bounds.bound(mesh, pipeline, costs, until, 20);
      for (int depth = 0; depth < 12 && bound.shares; ++depth) {
        part.paths = std::make_shared<const std::vector<PassPath>>(bound.paths);
        const auto halves =
            split_part(*bound.shares, pipeline, tiny.base.network, costs, space.micro_batches(mesh),
                       part.ranges, [&] { return bounds.knows_peaks(mesh, pipeline, costs); });
        if (halves.empty()) {
          break;
        }
        ++splits;
        peaks += halves.front().front().of == StageRange::Of::One ? 1 : 0;
        by_strategy += halves.front().back().of == StageRange::Of::Strategies ? 1 : 0;
        const Shares before = *bound.shares;
        const std::size_t goes_on = pick<std::size_t>({0, 1});
        std::vector<PipelineBound> of_half;
        for (const std::vector<StageRange>& ranges : halves) {
          PipelinePart half = part;
          half.ranges = ranges;
          of_half.push_back(bounds.bound(mesh, pipeline, costs, until, 20, half, &before));
        }
        for (const Timed& plan : within) {
          RC_ASSERT(!holds(part.ranges, plan) ||
                    holds(halves.front(), plan) != holds(halves.back(), plan));
          for (std::size_t half = 0; half < halves.size(); ++half) {
            RC_ASSERT(!holds(halves[half], plan) || of_half[half].seconds <= plan.time.value() ||
                      (plan.time.value() >= until && of_half[half].seconds <= until));
          }
        }
        if (depth == 0) {  // whatever choices beat its own
          RC_ASSERT(std::min(of_half.front().seconds, of_half.back().seconds) <= best.value());
        }
        part.ranges = halves[goes_on];
        bound = std::move(of_half[goes_on]);
      }
    }
  }));
  EXPECT_GT(splits, 50);
  EXPECT_GT(peaks, 5);
  EXPECT_GT(by_strategy, 50);
}

}  // namespace
}  // namespace orrery::search
