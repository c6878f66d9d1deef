// SPDX-License-Identifier: Apache-2.0
// What a pool of a mixed cluster could do alone is in the space of the cluster.
#include <gtest/gtest.h>

#include <string>

#include "search/mixed/search.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {
namespace {

Problem small_problem_on(const std::string& cluster, const std::vector<std::string>& pools) {
  Problem problem;
  problem.network = "gpt3-125m";
  problem.cluster = cluster;
  problem.batch = 8;
  problem.sequence = 1024;
  problem.settings = {"layers=7"};
  for (const std::string& pool : pools) {
    problem.settings.push_back(pool + "node.gpus=4");
  }
  return problem;
}

Options even_options(const std::string& fixes) {
  Options options;
  options.interval_draws = 0;
  options.constraints.fix(fixes);
  return options;
}

// Under any schedule, also of one stage, and with the usual cut.
TEST(MixedPools, TheClusterIsNoSlowerThanAnyPoolAlone) {
  for (const std::string fixes :
       {"cp=1,schedule=gpipe", "cp=1,schedule=zb-h1", "cp=1,schedule=interleaved,chunks=2",
        "cp=1,tp=1,pp=4,schedule=1f1b", "cp=1,tp=1,pp=2,schedule=gpipe"}) {
    const MixedOutcome mixed = search_mixed(
        mixed_base_plan(small_problem_on("hgx-h100:1+l40s-8:1", {"hgx-h100.", "l40s-8."})),
        even_options(fixes));
    ASSERT_TRUE(mixed.best) << fixes;
    for (const std::string pool : {"hgx-h100:1", "l40s-8:1"}) {
      const Outcome alone =
          search(base_plan(small_problem_on(pool, {""})), even_options(fixes + ",stages=even"));
      ASSERT_TRUE(alone.best) << pool << fixes;
      EXPECT_LE(mixed.best->simulation.iteration_time, alone.best->simulation.iteration_time)
          << pool << fixes;
    }
  }
}

// One stage is tried under 1f1b alone, but where that is left out.
TEST(MixedPools, OneStageHasOneSchedule) {
  const plan::MixedPlan base =
      mixed_base_plan(small_problem_on("hgx-h100:1+l40s-8:1", {"hgx-h100.", "l40s-8."}));
  const auto plans_of = [&](const std::string& schedule) {
    Options options = even_options("cp=1,tp=1,pp=1" + schedule);
    return search_mixed(base, options).plans;
  };
  EXPECT_EQ(plans_of(",schedule=gpipe"), plans_of(""));
  EXPECT_EQ(plans_of(",schedule=zb-h1"), plans_of(""));
  Options without = even_options("cp=1,tp=1,pp=1");
  without.constraints.forbid("schedule=1f1b");
  EXPECT_GT(search_mixed(base, without).plans, plans_of(""));
}

}  // namespace
}  // namespace orrery::search
