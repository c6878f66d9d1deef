// SPDX-License-Identifier: Apache-2.0
// Frontiers, draws and better hardware over the space per block: through the same code as over the
// homogeneous one, with certificates that hold for every plan of the space.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "search/pareto.hpp"
#include "search/per_block/numbered_plans.hpp"
#include "search/per_block/search.hpp"
#include "search/robust.hpp"
#include "search/sensitivity.hpp"
#include "tests/unit/search/outcome_text.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

constexpr const char* kFewPlans = "cp=1,pp=2,micro_batch=1,recompute=none";

plan::Plan doubted_base() {
  Shape shape;
  shape.spec = small_spec(2);
  shape.overrides = {"node.gpus=4", "gpu.memory=4 GiB"};
  return base_plan(shape);
}

Options per_block_options(int jobs = 1, const std::string& fixes = kFewPlans) {
  Options options;
  options.space = SpaceKind::PerBlock;
  options.jobs = jobs;
  options.interval_draws = 16;
  options.constraints = fixed(fixes);
  options.constraints.choose_schedule("1f1b");
  return options;
}

ByteCount largest(const plan::Simulation& simulation) {
  ByteCount most;
  for (const plan::StageMemory& stage : simulation.memory) {
    most = std::max(most, stage.total());
  }
  return most;
}

// Simulates every plan of the space.
template <typename Each>
void simulate_all(const plan::Plan& base, const Options& options, Each each) {
  const Constraints constraints = per_block_constraints(options.constraints);
  const PerBlockSpace space(base, constraints);
  plan::Simulator simulator(base);
  plan::Plan plan = base;
  for (const StageMesh& mesh : space.meshes()) {
    const std::vector<plan::BlockPlan> strategies = space.strategies(mesh);
    for (const Pipeline& pipeline : space.pipelines(mesh)) {
      const NumberedPlans plans(space, mesh, pipeline);
      for (std::int64_t number = 0; number < plans.size(); ++number) {
        space.configure(mesh, pipeline, strategies, plans.at(number), plan);
        const plan::Simulation simulation = simulator.run(plan);
        if (!simulation.does_not_fit) {
          each(simulation);
        }
      }
    }
  }
}

TEST(PerBlockDoubts, EveryPointOfAMemoryFrontierBoundsAllPlans) {
  const plan::Plan base = doubted_base();
  const Options options = per_block_options(1, "cp=1,pp=2,micro_batch=1,zero=1");
  Seconds heard;  // of a search under way
  const ParetoFrontier frontier =
      find_pareto(ParetoKind::Memory, {}, base, options, {},
                  [&](const ProgressReport& report) { heard = report.best; });
  ASSERT_GE(frontier.points.size(), 2U);
  EXPECT_GT(heard, Seconds(0));
  for (const ParetoPoint& point : frontier.points) {
    EXPECT_EQ(verify(point.found), "");
    EXPECT_EQ(point.memory, largest(point.found.simulation));
  }
  for (std::size_t i = 1; i < frontier.points.size(); ++i) {
    EXPECT_LT(frontier.points[i].memory, frontier.points[i - 1].memory);
    EXPECT_GT(frontier.points[i].found.simulation.iteration_time,
              frontier.points[i - 1].found.simulation.iteration_time);
  }
  std::int64_t plans = 0;
  ByteCount least = base.cluster.gpu.memory;
  simulate_all(base, options, [&](const plan::Simulation& simulation) {
    ++plans;
    const ByteCount memory = largest(simulation);
    least = std::min(least, memory);
    for (const ParetoPoint& point : frontier.points) {
      if (memory <= point.memory) {
        EXPECT_GE(simulation.iteration_time, point.lower_bound);
      }
    }
  });
  EXPECT_GT(plans, 1000);
  EXPECT_TRUE(frontier.complete);
  EXPECT_FALSE(frontier.has_every_point());
  // What the last search proved: nothing fits the budget below the last point.
  const std::int64_t step = base.cluster.gpu.memory.value() / 16;
  EXPECT_TRUE(frontier.below_is_proven);
  EXPECT_GT(least.value(), (frontier.points.back().memory.value() - 1) / step * step);
}

Problem parts_problem() {
  Problem problem;
  problem.network = "gpt3-125m";
  problem.cluster = "dgx-a100:1";
  problem.batch = 4;
  problem.settings = {"layers=2", "node.gpus=4", "gpu.price=2 USD/h"};
  return problem;
}

// A search that may end with a gap leaves plans on fewer GPUs, too: they count.
TEST(PerBlockDoubts, PointsAreBoundedOverAllPartsThatCostNoMore) {
  const Problem problem = parts_problem();
  const plan::Plan base = base_plan(problem);
  for (const ParetoKind kind : {ParetoKind::Gpus, ParetoKind::Cost}) {
    for (const SpaceKind space : {SpaceKind::Homogeneous, SpaceKind::PerBlock}) {
      Options options = per_block_options(1, "cp=1,micro_batch=1");
      options.space = space;
      options.gap_fraction = 0.6;
      const ParetoFrontier frontier = find_pareto(kind, problem, base, options);
      ASSERT_GE(frontier.points.size(), 1U);
      options.gap_fraction = 0;
      for (int gpus = 1; gpus <= 4; ++gpus) {
        const plan::Plan part =
            base_plan(with_settings(problem, {"node.gpus=" + std::to_string(gpus)}));
        const Outcome best = search_space(part, options);
        ASSERT_TRUE(best.best);
        const Seconds time = best.best->simulation.iteration_time;
        for (const ParetoPoint& point : frontier.points) {
          const bool as_cheap =
              kind == ParetoKind::Gpus
                  ? gpus <= point.gpus
                  : gpus * time <= point.gpus * point.found.simulation.iteration_time;
          if (as_cheap) {
            EXPECT_GE(time, point.lower_bound) << gpus << " of " << point.gpus;
            EXPECT_GE(time * (1 + 1e-12),
                      point.found.simulation.iteration_time * (1 - point.gap_fraction));
          }
        }
      }
    }
  }
}

// At peak rate all four GPUs would be faster at no higher cost, and nobody looked.
TEST(PerBlockDoubts, PartsThatWereCutShortLeavePointsUnproven) {
  const Problem problem = parts_problem();
  const plan::Plan base = base_plan(problem);
  Options options = per_block_options(1, "cp=1,micro_batch=1");
  int searches = 0;
  options.stop = [&searches] { return searches > 0; };
  for (const SpaceKind space : {SpaceKind::Homogeneous, SpaceKind::PerBlock}) {
    searches = 0;
    options.space = space;
    const ParetoFrontier frontier =
        find_pareto(ParetoKind::Cost, problem, base, options,
                    [&](const ParetoFrontier& so_far) { searches = so_far.searches; });
    EXPECT_FALSE(frontier.complete);
    const ParetoPoint& cheapest = frontier.points.back();
    ASSERT_EQ(cheapest.gpus, 1);
    EXPECT_GT(cheapest.gap_fraction, 0.5);
  }
}

TEST(PerBlockDoubts, FrontiersGoOnFromTheirLogAndFromNoOther) {
  const Problem problem = parts_problem();
  const plan::Plan base = base_plan(problem);
  Options options = per_block_options(1, "cp=1,micro_batch=1");
  options.checkpoint = testing::TempDir() + "/per_block_frontier";
  const ParetoFrontier whole = find_pareto(ParetoKind::Gpus, problem, base, options);
  Options again = per_block_options(1, "cp=1,micro_batch=1");
  again.resume = options.checkpoint;
  const ParetoFrontier resumed = find_pareto(ParetoKind::Gpus, problem, base, again);
  ASSERT_EQ(resumed.points.size(), whole.points.size());
  for (std::size_t i = 0; i < whole.points.size(); ++i) {
    EXPECT_EQ(plan::to_json(resumed.points[i].found.plan).dump(),
              plan::to_json(whole.points[i].found.plan).dump());
    EXPECT_EQ(resumed.points[i].lower_bound, whole.points[i].lower_bound);
  }
  EXPECT_EQ(resumed.unproven_schedules, whole.unproven_schedules);
  again.space = SpaceKind::Homogeneous;
  try {
    (void)find_pareto(ParetoKind::Gpus, problem, base, again);
    ADD_FAILURE() << "goes on from a frontier of the other space";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--space"));
  }
}

// What the homogeneous search that comes first has proven is not proven of this space: a frontier
// that waits for a bound would end too early.
TEST(PerBlockDoubts, NoBoundIsReportedThatDoesNotHold) {
  const plan::Plan base = doubted_base();
  std::vector<Seconds> bounds;
  const PerBlockOutcome found =
      search_per_block(base, per_block_options(),
                       [&](const ProgressReport& report) { bounds.push_back(report.bound); });
  const Seconds best = found.outcome.best->simulation.iteration_time;
  ASSERT_LT(best, found.homogeneous);  // so that the bound of the first search is above it
  ASSERT_FALSE(bounds.empty());
  EXPECT_LE(*std::max_element(bounds.begin(), bounds.end()), best);
}

TEST(PerBlockDoubts, PlansToSpareChangeNoAnswer) {
  const plan::Plan base = doubted_base();
  Options options = per_block_options();
  const std::string without = text_of(search_per_block(base, options).outcome);
  options.spare = 40;
  const PerBlockOutcome with = search_per_block(base, options);
  EXPECT_EQ(text_of(with.outcome), without);
  ASSERT_GT(with.outcome.spare.size(), 3U);
  EXPECT_LE(with.outcome.spare.size(), 40U);
  Seconds last = with.outcome.alternatives.back().simulation.iteration_time;
  for (const Found& one : with.outcome.spare) {
    EXPECT_LE(last, one.simulation.iteration_time);
    EXPECT_EQ(verify(one), "");
    last = one.simulation.iteration_time;
  }
}

TEST(PerBlockDoubts, PlansThatTheSearchMetAreDrawn) {
  const plan::Plan base = doubted_base();
  const RobustOptions how{.draws = 32, .seed = 7, .most = 24};
  std::vector<Robust> both;
  for (const int jobs : {1, 2}) {
    Options options = per_block_options(jobs);
    options.spare = how.most;
    both.push_back(find_robust(base, options, search_space(base, options), how));
  }
  ASSERT_EQ(both[0].plans.size(), both[1].plans.size());
  ASSERT_GT(both[0].plans.size(), 3U);
  EXPECT_LE(both[0].plans.size(), 24U);
  EXPECT_TRUE(both[0].met_alone);
  EXPECT_FALSE(both[0].complete);
  double sum = 0;
  bool differs = false;  // blocks of a plan
  for (std::size_t i = 0; i < both[0].plans.size(); ++i) {
    EXPECT_EQ(both[0].plans[i].probability_best, both[1].plans[i].probability_best);
    EXPECT_EQ(both[0].plans[i].mean_loss, both[1].plans[i].mean_loss);
    sum += both[0].plans[i].probability_best;
    differs = differs || both[0].plans[i].found.plan.blocks.size() > 1;
  }
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_TRUE(differs);
}

TEST(PerBlockDoubts, BetterHardwareIsPlannedPerBlock) {
  const Problem problem = parts_problem();
  const plan::Plan base = base_plan(problem);
  const Options options = per_block_options(1, "cp=1,pp=2,micro_batch=1");
  const Outcome nominal = search_space(base, options);
  const auto rows = find_sensitivity(problem, base, options, *nominal.best, 0.1);
  ASSERT_GE(rows.size(), 5U);
  for (const Sensitivity& row : rows) {
    ASSERT_TRUE(row.searched);
    EXPECT_LE(row.replanned, row.same_plan);
    if (row.path == "gpu.hbm_bandwidth") {
      const double rate = base.cluster.gpu.hbm_bandwidth.value() * 1.1 / 1e9;
      const plan::Plan better = base_plan(
          with_settings(problem, {"gpu.hbm_bandwidth=" + std::to_string(rate) + " GB/s"}));
      const Seconds searched = search_space(better, options).best->simulation.iteration_time;
      EXPECT_NEAR(row.replanned / searched, 1, 1e-6);
    }
  }
}

}  // namespace
}  // namespace orrery::search
