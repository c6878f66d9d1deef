// SPDX-License-Identifier: Apache-2.0
// The search under a cap of activations, against simulating everything.
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"
#include "search/tree/search.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

// A cap of activations leaves the schedules that take one, and the search finds the best of them.
TEST(SearchCap, FixedCapOfActivationsIsThatOfEveryPipeline) {
  const plan::Plan base = base_plan({small_spec(8), "dgx-a100:1", {"node.gpus=4"}, 16, 512});
  Options options;
  options.jobs = 2;
  options.constraints.fix("activation_cap=2");
  for (const char* name : {"1f1b", "gpipe", "zb-1p", "crosspipe", "v-cap"}) {
    options.constraints.choose_schedule(name);
  }
  std::set<std::string> seen;
  const Exhaustive all =
      enumerate(base, options.constraints,
                [&](const plan::Plan& plan, const plan::Simulation&, plan::Simulator&) {
                  EXPECT_EQ(plan.activation_cap, plan.pp > 1 ? 2 : 0) << plan.schedule;
                  if (plan.pp > 1) {
                    seen.insert(plan.schedule);
                  }
                });
  EXPECT_EQ(seen.count("gpipe"), 0U);
  EXPECT_EQ(seen.count("1f1b"), 1U);
  EXPECT_EQ(seen.count("v-cap"), 1U);
  const Outcome found = search(base, options);
  EXPECT_EQ(found.plans, all.plans);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->simulation.iteration_time, *all.best);
  options.constraints.fix("pp=4");
  const Outcome pipelined = search(base, options);
  ASSERT_TRUE(pipelined.best);
  EXPECT_EQ(pipelined.best->simulation.iteration_time, *enumerate(base, options.constraints).best);
  EXPECT_EQ(plan::read_plan(plan::to_json(pipelined.best->plan), "again").activation_cap, 2);
  EXPECT_THROW(options.constraints.forbid("activation_cap=3"), Error);
}

}  // namespace
}  // namespace orrery::search
