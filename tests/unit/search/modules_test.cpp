// SPDX-License-Identifier: Apache-2.0
// Searches over networks with an encoder, and over schedules with parameter servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"
#include "tests/unit/models/specs.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

using testing::Contains;
using testing::HasSubstr;

Shape with_encoder(bool frozen) {
  const models::NetworkSpec spec = models::behind_encoder(small_spec(), 6, 4, frozen);
  return {spec, "dgx-a100:1", {"node.gpus=4"}, 16, 1024};
}

// Every plan of the space is simulated: the bounds of the search must not exclude the best. Of
// pipelines `seen` gets the schedules.
void expect_best_of_all(const plan::Plan& base, const Options& options, const std::string& name,
                        std::set<std::string>& seen) {
  const Exhaustive all = enumerate(
      base, options.constraints,
      [&](const plan::Plan& plan, const plan::Simulation& result, plan::Simulator& simulator) {
        if (plan.pp > 1) {
          seen.insert(plan.schedule);
        }
        plan::check_plan(plan, name);
        EXPECT_LE(simulator.lower_bound(plan), result.iteration_time) << plan.schedule;
      });
  const Outcome found = search(base, options);
  EXPECT_EQ(found.plans, all.plans);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->simulation.iteration_time, *all.best);
  EXPECT_EQ(verify(*found.best), "");
}

TEST(SearchOfModules, TriesFrozenPartsInIdleTimes) {
  Options options;
  options.jobs = 2;
  options.constraints.fix("tp=1,cp=1");
  std::set<std::string> seen;
  expect_best_of_all(base_plan(with_encoder(true)), options, "frozen", seen);
  EXPECT_THAT(seen, Contains("diffusionpipe"));
  options.constraints.fix("pp=4");
  const Outcome deep = search(base_plan(with_encoder(true)), options);
  ASSERT_TRUE(deep.best);
  seen.clear();
  expect_best_of_all(base_plan(with_encoder(false)), options, "trained", seen);
  EXPECT_FALSE(seen.contains("diffusionpipe"));
}

// Also without a pipeline, where frozen layers run beside the reductions of the step.
TEST(SearchOfModules, NoScheduleByItsNameIsFaster) {
  const Shape shape = with_encoder(true);
  Options options;
  options.jobs = 2;
  for (const std::string fix : {"pp=1,cp=1", "pp=2,cp=1"}) {
    options.constraints = {};
    options.constraints.fix(fix);
    const Outcome all = search(base_plan(shape), options);
    ASSERT_TRUE(all.best);
    int tried = 0;
    for (const sim::Schedule* schedule : sim::schedule_table()) {
      if (!schedule->in_search) {
        continue;
      }
      options.constraints = {};
      options.constraints.fix(fix + ",schedule=" + std::string(schedule->name));
      try {
        const Outcome named = search(base_plan(shape), options);
        ASSERT_TRUE(named.best) << fix << " " << schedule->name;
        EXPECT_GE(named.best->simulation.iteration_time, all.best->simulation.iteration_time)
            << fix << " " << schedule->name;
        ++tried;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("no plan")) << schedule->name;
      }
    }
    EXPECT_GT(tried, 5) << fix;
  }
}

// Every plan without a pipeline, or with both backbones on the same devices.
TEST(SearchOfModules, TriesBackbonesInOppositeDirections) {
  Options options;
  options.jobs = 2;
  options.constraints.fix("tp=1,cp=1");
  std::set<std::string> seen;
  Shape shape = with_encoder(true);
  shape.spec = models::cascaded(small_spec(), 6, 4);
  expect_best_of_all(base_plan(shape), options, "cascade", seen);
  EXPECT_THAT(seen, Contains("diffusionpipe-cascaded"));
  EXPECT_FALSE(seen.contains("diffusionpipe"));
  options.constraints.fix("pp=4");
  const Outcome deep = search(base_plan(shape), options);
  ASSERT_TRUE(deep.best);
  EXPECT_EQ(deep.best->plan.schedule, "diffusionpipe-cascaded");
}

// Context ranks share the tokens of both backbones, sequence-parallel ones as well.
TEST(SearchOfModules, DividesTheTokensOfBothBackbones) {
  Options options;
  options.jobs = 2;
  options.constraints.fix("tp=1,cp=2");
  Shape shape = with_encoder(true);
  shape.spec = models::cascaded(small_spec(), 6, 4);
  EXPECT_TRUE(search(base_plan(shape), options).best);
  shape.spec.cascade.tokens = 1022;
  EXPECT_THROW((void)search(base_plan(shape), options), Error);
  options.constraints = {};
  options.constraints.fix("tp=4,cp=1,sequence_parallel=true");
  EXPECT_THROW((void)search(base_plan(shape), options), Error);
}

TEST(SearchOfModules, TriesStagesOfTheirOwn) {
  for (const char* parts : {"encoder_parts=1", "encoder_parts=4"}) {
    Options options;
    options.jobs = 2;
    options.constraints.fix("tp=1,cp=1,pp=2,zero=0");
    options.constraints.fix(parts);
    std::set<std::string> seen;
    expect_best_of_all(base_plan(with_encoder(false)), options, parts, seen);
    EXPECT_THAT(seen, Contains("dip"));
    EXPECT_THAT(seen, Contains("interleaved"));
  }
}

// An item is not cut: parts divide those of a micro-batch.
TEST(SearchOfModules, TriesNoPartsOfItems) {
  Options options;
  options.jobs = 2;
  options.constraints.choose_schedule("dip");
  options.constraints.fix("tp=1,cp=1,pp=2,encoder_parts=2");
  Shape shape = with_encoder(false);
  shape.spec.encoder.items = 1;
  const Outcome found = search(base_plan(shape), options);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->plan.micro_batch % 2, 0);
  EXPECT_EQ(verify(*found.best), "");
  options.constraints.fix("micro_batch=1");
  const Outcome none = search(base_plan(shape), options);
  EXPECT_FALSE(none.best);
  EXPECT_THAT(none.closest_overflow, HasSubstr("set encoder_parts to 1"));
}

TEST(SearchOfModules, SaysWhatTheNetworkLacks) {
  Options options;
  options.jobs = 1;
  const auto message = [&](const char* schedule) -> std::string {
    Options named = options;
    named.constraints.choose_schedule(schedule);
    try {
      (void)search(base_plan(), named);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("dip"), HasSubstr("give the network an \"encoder\""));
  EXPECT_THAT(message("diffusionpipe"), HasSubstr("\"frozen\": true"));
}

// Asynchronous, so only where that is allowed, and never with sharded states.
TEST(SearchOfServers, FindsPlansOfWorkersThatShareNothing) {
  for (const char* schedule : {"hetpipe", "zou-ps-ring"}) {
    Options options;
    options.jobs = 1;
    options.constraints.choose_schedule(schedule);
    options.constraints.fix("tp=1,cp=1");
    const plan::Plan base = base_plan({small_spec(), "dgx-a100:2", {"node.gpus=4"}, 16, 1024});
    EXPECT_THROW((void)search(base, options), Error) << schedule;
    options.constraints.allow("asynchronous");
    const Outcome found = search(base, options);
    ASSERT_TRUE(found.best) << schedule;
    EXPECT_EQ(found.best->plan.schedule, schedule);
    EXPECT_EQ(found.best->plan.blocks.front().layout.zero_stage, 0);
    EXPECT_EQ(verify(*found.best), "");
    EXPECT_FALSE(found.best->simulation.synchronous);
  }
}

}  // namespace
}  // namespace orrery::search
