// SPDX-License-Identifier: Apache-2.0
// Frontiers against exhaustive simulation of the same space.
#include "search/pareto.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "tests/unit/search/small_search.hpp"
#include "topologies/graph.hpp"

namespace orrery::search {
namespace {

Options few_plans() {
  Options options;
  options.jobs = 1;
  options.constraints.forbid("schedule=gpipe");
  options.constraints.choose_schedule("1f1b");
  options.constraints.choose_schedule("interleaved");
  return options;
}

ByteCount fullest(const plan::Simulation& simulation) {
  ByteCount most;
  for (const plan::StageMemory& stage : simulation.memory) {
    most = std::max(most, stage.total());
  }
  return most;
}

TEST(ParetoTest, MemoryFrontierEqualsThatOfAllPlans) {
  const plan::Plan base = base_plan();
  const Options options = few_plans();
  std::vector<std::pair<Seconds, ByteCount>> all;
  enumerate(base, options.constraints,
            [&](const plan::Plan&, const plan::Simulation& simulation, plan::Simulator&) {
              if (!simulation.does_not_fit) {
                all.emplace_back(simulation.iteration_time, fullest(simulation));
              }
            });
  std::sort(all.begin(), all.end());
  std::vector<std::pair<Seconds, ByteCount>> expected;
  for (const auto& plan : all) {
    if (expected.empty() || plan.second < expected.back().second) {
      expected.push_back(plan);
    }
  }
  const ParetoFrontier frontier = find_pareto(ParetoKind::Memory, {}, base, options);
  ASSERT_GT(expected.size(), 2U);
  ASSERT_EQ(frontier.points.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const ParetoPoint& point = frontier.points[i];
    EXPECT_EQ(point.found.simulation.iteration_time, expected[i].first);
    EXPECT_EQ(point.memory, expected[i].second);
    EXPECT_GT(point.replayed, ByteCount());
    EXPECT_LE(point.replayed, base.cluster.gpu.memory);
    EXPECT_EQ(point.gap_fraction, 0);
    EXPECT_EQ(point.found.plan.memory_reserve, base.memory_reserve);
    EXPECT_EQ(verify(point.found), "");
  }
  EXPECT_TRUE(frontier.complete);
  EXPECT_FALSE(frontier.below.empty());
}

Problem small_problem() {
  Problem problem;
  problem.network = "bert-base";
  problem.cluster = "dgx-a100:2";
  problem.batch = 64;
  problem.settings = {"gpu.price=2 USD/h"};
  return problem;
}

TEST(ParetoTest, PartsOfTheClusterFromOneGpuOn) {
  const Problem problem = small_problem();
  const plan::Plan base = search::base_plan(problem);
  const ParetoFrontier frontier = find_pareto(ParetoKind::Gpus, problem, base, few_plans());
  ASSERT_FALSE(frontier.points.empty());
  EXPECT_EQ(frontier.points.back().gpus, 1);
  for (std::size_t i = 0; i < frontier.points.size(); ++i) {
    const ParetoPoint& point = frontier.points[i];
    EXPECT_EQ(point.gpus, point.found.plan.num_gpus());
    if (i > 0) {
      EXPECT_LT(point.gpus, frontier.points[i - 1].gpus);
      EXPECT_GT(point.found.simulation.iteration_time,
                frontier.points[i - 1].found.simulation.iteration_time);
    }
    Problem part = problem;
    part.settings.push_back(point.gpus < 8 ? "nodes=1" : "nodes=" + std::to_string(point.gpus / 8));
    if (point.gpus < 8) {
      part.settings.push_back("node.gpus=" + std::to_string(point.gpus));
    }
    const Outcome alone = search(search::base_plan(part), few_plans());
    EXPECT_EQ(alone.best.value().simulation.iteration_time, point.found.simulation.iteration_time);
  }
}

// What was set of the cluster gives way to what a part says, and to nothing else.
TEST(ParetoTest, SettingsOfTheClusterDoNotHideItsParts) {
  Problem problem = small_problem();
  problem.settings = {"gpu.memory=70 GB"};
  const ParetoFrontier frontier =
      find_pareto(ParetoKind::Gpus, problem, search::base_plan(problem), few_plans());
  problem.cluster = "dgx-a100:4";
  problem.settings = {"gpu.memory=70 GB", "nodes=2", " node.gpus = 8"};
  const ParetoFrontier set =
      find_pareto(ParetoKind::Gpus, problem, search::base_plan(problem), few_plans());
  ASSERT_GT(frontier.points.size(), 1U);
  ASSERT_EQ(set.points.size(), frontier.points.size());
  for (std::size_t i = 0; i < set.points.size(); ++i) {
    EXPECT_EQ(set.points[i].gpus, frontier.points[i].gpus);
    EXPECT_EQ(set.points[i].found.simulation.iteration_time,
              frontier.points[i].found.simulation.iteration_time);
  }
}

// The frontier is that of all counts, whether they divide the cluster or not.
TEST(ParetoTest, CountsThatDoNotDivideAreTried) {
  Problem problem = small_problem();
  problem.cluster = "dgx-a100:3";
  problem.batch = 60;  // six GPUs share it, eight do not
  const plan::Plan base = search::base_plan(problem);
  const ParetoFrontier frontier = find_pareto(ParetoKind::Gpus, problem, base, few_plans());
  std::vector<std::pair<int, Seconds>> expected;
  for (int gpus = 1; gpus <= 24; gpus += gpus < 8 ? 1 : 8) {
    Problem part = problem;
    part.settings.push_back("nodes=" + std::to_string(std::max(1, gpus / 8)));
    part.settings.push_back("node.gpus=" + std::to_string(std::min(gpus, 8)));
    try {
      const Outcome alone = search(search::base_plan(part), few_plans());
      const Seconds time = alone.best.value().simulation.iteration_time;
      if (expected.empty() || time < expected.back().second) {
        expected.emplace_back(gpus, time);
      }
    } catch (const Error&) {  // no plan divides so many
    }
  }
  std::reverse(expected.begin(), expected.end());
  ASSERT_EQ(frontier.points.size(), expected.size());
  bool divides = true;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(frontier.points[i].gpus, expected[i].first);
    EXPECT_EQ(frontier.points[i].found.simulation.iteration_time, expected[i].second);
    divides = divides && (8 % expected[i].first == 0 || expected[i].first == 24);
  }
  EXPECT_FALSE(divides);
  EXPECT_TRUE(frontier.complete);
}

// Parts of which a fabric cannot be built are missing, and named.
TEST(ParetoTest, NamesPartsThatCannotBeBuilt) {
  Problem problem = small_problem();
  problem.cluster = "dgx-a100:4";
  problem.settings = {"fabric.builder=torus", "fabric.dimensions=[2, 2]"};
  const ParetoFrontier frontier =
      find_pareto(ParetoKind::Gpus, problem, search::base_plan(problem), few_plans());
  EXPECT_FALSE(frontier.complete);
  EXPECT_GT(frontier.points.size(), 2U);
  EXPECT_THAT(frontier.unsearched,
              testing::ElementsAre(testing::ContainsRegex("^2 nodes: .*torus multiply to 4"),
                                   testing::ContainsRegex("^3 nodes: .*torus multiply to 4")));
}

// Meshes, boards and NICs of a node follow its number of GPUs.
TEST(ParetoTest, EveryPartOfEveryNodeCanBeBuilt) {
  for (const std::string& node : topologies::node_names()) {
    const topologies::Cluster whole = topologies::load_cluster(fmt::format("{}:2", node));
    for (int gpus = 1; gpus <= whole.node.gpus; ++gpus) {
      const std::vector<std::string> part = {"nodes=1", fmt::format("node.gpus={}", gpus)};
      EXPECT_NO_THROW({
        const topologies::Cluster cluster =
            topologies::load_cluster(fmt::format("{}:2", node), part);
        EXPECT_EQ(cluster.num_gpus(), gpus);
        (void)topologies::build_graph(cluster);
      }) << node
         << " with " << gpus;
    }
  }
}

TEST(ParetoTest, CostIsPriceTimesGpusTimesTime) {
  const Problem problem = small_problem();
  const plan::Plan base = search::base_plan(problem);
  const ParetoFrontier frontier = find_pareto(ParetoKind::Cost, problem, base, few_plans());
  ASSERT_FALSE(frontier.points.empty());
  for (std::size_t i = 0; i < frontier.points.size(); ++i) {
    const ParetoPoint& point = frontier.points[i];
    const double expected = 2.0 / 3600 * point.gpus * point.found.simulation.iteration_time.value();
    EXPECT_NEAR(point.usd_per_iteration, expected, 1e-12);
    if (i > 0) {
      EXPECT_LT(point.usd_per_iteration, frontier.points[i - 1].usd_per_iteration);
    }
  }
}

TEST(ParetoTest, NoPriceIsAnErrorThatSaysHowToGiveOne) {
  plan::Plan base = base_plan();
  base.cluster.gpu.price = {};
  try {
    find_pareto(ParetoKind::Cost, {}, base, few_plans());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("gpu.price"), std::string::npos) << error.what();
  }
  EXPECT_THROW(parse_pareto_kind("memroy", "--pareto"), Error);
}

}  // namespace
}  // namespace orrery::search
