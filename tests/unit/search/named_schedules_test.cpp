// SPDX-License-Identifier: Apache-2.0
// Schedules that the search tries when they are named: the best plan is that of simulating all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

struct Named {
  const char* schedule;
  const char* fix;
};

class NamedSchedule : public testing::TestWithParam<Named> {};

TEST_P(NamedSchedule, BestEqualsSimulatingEverything) {
  models::NetworkSpec spec = small_spec(8);
  spec.tied_embeddings = std::string(GetParam().fix).find("post_validation") == std::string::npos;
  plan::Plan base = base_plan({spec, "dgx-a100:1", {"node.gpus=8"}, 16, 512});
  Options options;
  options.jobs = 1;
  options.constraints = fixed(std::string(GetParam().fix) + ",schedule=" + GetParam().schedule);
  options.constraints.apply(base.execution);
  if (!sim::find_schedule(GetParam().schedule, "test").traits.synchronous) {
    options.constraints.allow("asynchronous");
  }
  std::set<std::string> seen;
  const Exhaustive all = enumerate(
      base, options.constraints,
      [&](const plan::Plan& plan, const plan::Simulation& simulation, plan::Simulator& simulator) {
        seen.insert(plan.schedule);
        EXPECT_LE(simulator.lower_bound(plan), simulation.iteration_time);
        EXPECT_NO_THROW(plan::check_plan(plan, "enumerated"));
      });
  EXPECT_EQ(seen, (std::set<std::string>{GetParam().schedule}));
  const Outcome found = search(base, options);
  EXPECT_EQ(found.plans, all.plans);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->simulation.iteration_time, *all.best);
  EXPECT_EQ(verify(*found.best), "");
}

// In the search beside that of synchronous schedules a single stage is none of theirs, unless it is
// asked for; workers that are no pipelines have no other.
TEST(AsynchronousSearch, HasSeveralStages) {
  const plan::Plan base = base_plan();
  const auto of_one_stage = [&](const Constraints& constraints) {
    std::set<std::string> names;
    const Space space(base, constraints);
    for (const Group& group : space.groups()) {
      for (const Member& member : space.members(group)) {
        if (group.pp == 1) {
          names.insert(space.schedules().choices()[static_cast<std::size_t>(member.schedule)].name);
        }
      }
    }
    return names;
  };
  Constraints constraints;
  constraints.allow("asynchronous");
  EXPECT_EQ(of_one_stage(constraints.asynchronous_alone()), (std::set<std::string>{"zou-ps-ring"}));
  constraints.fix("pp=1");
  EXPECT_GT(of_one_stage(constraints.asynchronous_alone()).size(), 1U);
  Constraints named;  // a search of its own
  named.allow("asynchronous");
  named.fix("schedule=pipedream");
  EXPECT_EQ(of_one_stage(named), (std::set<std::string>{"pipedream"}));
}

// Over slow adapters: what reductions of every pass add to backwards that are cut must not be held
// against the ZeRO stages that reduce once.
TEST(SplitSchedule, BestOfAllZeroStagesEqualsSimulatingEverything) {
  for (const char* schedule : {"zb-h1", "zb-v", "v-half"}) {
    SCOPED_TRACE(schedule);
    const std::vector<std::string> slow = {"node.gpus=1", "node.scale_out.nics=1",
                                           "node.scale_out.nic_bandwidth=2 GB/s"};
    const plan::Plan base = base_plan({small_spec(8), "dgx-a100:4", slow, 16, 512});
    Options options;
    options.jobs = 1;
    options.constraints = fixed(std::string("pp=2,cp=1,recompute=none,schedule=") + schedule);
    std::set<int> zeros;
    const Exhaustive all = enumerate(
        base, options.constraints,
        [&](const plan::Plan& plan, const plan::Simulation& run, plan::Simulator& simulator) {
          zeros.insert(plan.blocks.front().layout.zero_stage);
          plan::Plan last = plan;  // its lists bound all of them
          last.blocks.front().layout.zero_stage = 3;
          EXPECT_LE(simulator.list_bound(last), run.iteration_time);
        });
    EXPECT_EQ(zeros, (std::set<int>{0, 1, 2, 3}));
    const Outcome found = search(base, options);
    ASSERT_TRUE(found.best);
    EXPECT_EQ(found.best->simulation.iteration_time, *all.best);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, NamedSchedule,
    testing::Values(Named{"tessel", "pp=4,cp=1"}, Named{"tessel", "pp=4,cp=1,chunks=1"},
                    Named{"flexpipe", "pp=4,cp=1"}, Named{"infinipipe", "pp=4,cp=1,slices=2"},
                    Named{"pipeoffload", "pp=8"},
                    Named{"helixpipe", "pp=4,cp=1,zero=1,recompute=none"},
                    Named{"helixpipe", "pp=4,cp=1,zero=1,recompute=none,ships_weights=true"},
                    Named{"zb-h2", "pp=4,cp=1,post_validation=true"},
                    Named{"zb-v", "pp=4,cp=1,post_validation=true"},
                    Named{"slimpipe-vocab", "pp=4,cp=1,slices=4"},
                    Named{"layerpipe", "pp=4,cp=1,zero=1"}),
    [](const testing::TestParamInfo<Named>& row) {
      std::string name = std::string(row.param.schedule) + "_" + row.param.fix;
      std::replace_if(
          name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

TEST(NamedSchedules, HelixPipeShipsWeightsWhereThatPays) {
  const auto best = [](std::int64_t sequence, const std::string& more) {
    const plan::Plan base = base_plan({small_spec(8), "dgx-a100:1", {"node.gpus=4"}, 8, sequence});
    Options options;
    options.jobs = 1;
    options.constraints = fixed("pp=4,cp=1,zero=0,recompute=none,schedule=helixpipe" + more);
    plan::Plan executed = base;
    options.constraints.apply(executed.execution);
    return search(executed, options);
  };
  for (const std::int64_t sequence : {512, 2048}) {
    const Outcome free = best(sequence, "");
    const Outcome shipped = best(sequence, ",ships_weights=true");
    const Outcome kept = best(sequence, ",ships_weights=false");
    EXPECT_EQ(free.plans, shipped.plans + kept.plans);
    ASSERT_TRUE(free.best && shipped.best && kept.best);
    const Seconds with = shipped.best->simulation.iteration_time;
    const Seconds without = kept.best->simulation.iteration_time;
    EXPECT_EQ(free.best->simulation.iteration_time, std::min(with, without));
    EXPECT_EQ(free.best->plan.execution.ships_weights, with < without);
    EXPECT_EQ(verify(*free.best), "");
  }
}

}  // namespace
}  // namespace orrery::search
