// SPDX-License-Identifier: Apache-2.0
// Frontiers that go on from a checkpoint: the same as without, from wherever they were stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"
#include "search/pareto.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

Problem frontier_problem() {
  Problem problem;
  problem.network = "gpt2-medium";
  problem.cluster = "dgx-a100:1";
  problem.batch = 8;
  problem.settings = {"layers=4", "node.gpus=4", "gpu.price=2 USD/h"};
  return problem;
}

Options frontier_options() {
  Options options;
  options.jobs = 1;
  options.interval_draws = 8;
  options.constraints.choose_schedule("1f1b");
  return options;
}

std::string text_of_frontier(const ParetoFrontier& frontier) {
  std::string text = std::to_string(frontier.searches) + " " + std::to_string(frontier.plans) +
                     " " + std::to_string(frontier.simulated) + " " + frontier.below + "\n";
  for (const ParetoPoint& point : frontier.points) {
    const plan::Simulation& run = point.found.simulation;
    for (const double value :
         {run.iteration_time.value(), run.interval_low.value(), run.interval_high.value(),
          point.lower_bound.value(), point.gap_fraction, point.usd_per_iteration}) {
      text += std::to_string(value * 1e6) + " ";
    }
    text += std::to_string(point.memory.value()) + " " + std::to_string(point.replayed.value()) +
            " " + plan::to_json(point.found.plan).dump(-1) + "\n";
  }
  return text + (frontier.complete ? "complete" : "cut short");
}

TEST(ParetoLog, GoesOnFromEverySearch) {
  const Problem problem = frontier_problem();
  const plan::Plan base = base_plan(problem);
  for (const ParetoKind kind : {ParetoKind::Memory, ParetoKind::Gpus}) {
    Options options = frontier_options();
    const std::string whole = text_of_frontier(find_pareto(kind, problem, base, options));
    options.checkpoint = testing::TempDir() + "/frontier";
    std::vector<std::string> states;
    const auto keep = [&](const ParetoFrontier&) {
      states.push_back(options.checkpoint + std::to_string(states.size()));
      std::filesystem::copy_file(options.checkpoint, states.back(),
                                 std::filesystem::copy_options::overwrite_existing);
    };
    EXPECT_EQ(text_of_frontier(find_pareto(kind, problem, base, options, keep)), whole);
    ASSERT_GE(states.size(), 3U);
    for (const std::string& state : states) {
      Options again = frontier_options();
      again.resume = state;
      int searched = 0;
      EXPECT_EQ(text_of_frontier(find_pareto(kind, problem, base, again,
                                             [&](const ParetoFrontier&) { ++searched; })),
                whole);
      EXPECT_EQ(searched, std::ssize(states));
    }
  }
}

// A search that was ended is made again, and so is all behind it.
TEST(ParetoLog, AnEarlyEndIsNotKept) {
  const Problem problem = frontier_problem();
  const plan::Plan base = base_plan(problem);
  Options options = frontier_options();
  const std::string whole =
      text_of_frontier(find_pareto(ParetoKind::Memory, problem, base, options));
  for (const int questions : {30, 300}) {
    options.checkpoint = testing::TempDir() + "/early";
    int left = questions;
    options.stop = [&left] { return left-- <= 0; };
    const ParetoFrontier early = find_pareto(ParetoKind::Memory, problem, base, options);
    EXPECT_FALSE(early.complete);
    Options again = frontier_options();
    again.resume = options.checkpoint;
    EXPECT_EQ(text_of_frontier(find_pareto(ParetoKind::Memory, problem, base, again)), whole);
  }
}

std::string refused_frontier(ParetoKind kind, const Options& options) {
  const Problem problem = frontier_problem();
  try {
    (void)find_pareto(kind, problem, base_plan(problem), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ParetoLog, OtherFrontiersAndDamageAreRefused) {
  const Problem problem = frontier_problem();
  const plan::Plan base = base_plan(problem);
  Options options = frontier_options();
  options.checkpoint = testing::TempDir() + "/kept";
  (void)find_pareto(ParetoKind::Memory, problem, base, options);
  Options again = frontier_options();
  again.resume = options.checkpoint;
  EXPECT_THAT(refused_frontier(ParetoKind::Gpus, again), testing::HasSubstr("another --pareto"));
  Options fixed_more = again;
  fixed_more.constraints.fix("tp=1");
  EXPECT_THAT(refused_frontier(ParetoKind::Memory, fixed_more), testing::HasSubstr("--fix"));
  Options one = frontier_options();
  one.resume = options.checkpoint;
  EXPECT_THROW((void)search(base, one), Error);
  std::string bytes = read_file(options.checkpoint, 1 << 24);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file_atomically(options.checkpoint, bytes);
  EXPECT_THAT(refused_frontier(ParetoKind::Memory, again), testing::HasSubstr("damaged"));
}

}  // namespace
}  // namespace orrery::search
