// SPDX-License-Identifier: Apache-2.0
// The stages that a plan gets under other schedules.
#include "studies/plan_schedules.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/stage/schedule_cuts.hpp"
#include "plan/stages.hpp"
#include "search/problem.hpp"
#include "search/tree/search.hpp"
#include "tests/unit/plan/pipeline_fixture.hpp"

namespace orrery::studies {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The fastest plan of a schedule in a pipeline of four stages; one layout and micro-batch for all.
plan::Plan searched(const models::NetworkSpec& spec, const std::string& schedule, int chunks) {
  plan::Plan base = plan::small_plan(spec, "dgx-a100:1");
  base.pp = base.dp = 1;
  base.batch = 16;
  search::Options options;
  options.interval_draws = 0;
  options.constraints.fix(
      fmt::format("pp=4,tp=2,micro_batch=1,recompute=none,sequence_parallel=false,context=ring,"
                  "schedule={},chunks={}",
                  schedule, chunks));
  const search::Outcome outcome = search::search(base, options);
  return outcome.best.value().plan;
}

double row_seconds(const plan::Plan& plan) { return plan::simulate(plan).iteration_time.value(); }

// The head of this network takes as long as two layers: it is balanced on the last stage, on the
// device of the V's end, and not at all where all devices share it.
TEST(PlanSchedules, EachGetsTheStagesThatASearchGivesIt) {
  const models::NetworkSpec spec = plan::small_spec();
  const plan::Plan plan = searched(spec, "1f1b", 1);
  ASSERT_NE(plan.stage_blocks, plan::even_stages(plan.network, 4));
  for (const std::string name : {"1f1b", "zb-h1", "chimera", "zb-v", "v-half", "hanayo",
                                 "interleaved", "bitpipe", "vocab-1", "interlaced"}) {
    const ScheduledPlan scheduled = with_schedule(plan, {.name = name});
    const double best = row_seconds(searched(spec, name, scheduled.plan.chunks));
    EXPECT_NEAR(row_seconds(scheduled.plan), best, 0.01 * best) << name;
    // And back, from the plan of that search.
    const plan::Plan back =
        with_schedule(searched(spec, name, scheduled.plan.chunks), {.name = "1f1b", .chunks = 1})
            .plan;
    EXPECT_NEAR(row_seconds(back), row_seconds(plan), 0.01 * row_seconds(plan)) << name;
  }
}

TEST(PlanSchedules, ModulesGetTheStagesThatASearchGivesThem) {
  for (const bool frozen : {false, true}) {
    const models::NetworkSpec spec = plan::with_encoder(frozen);
    const std::string name = frozen ? "diffusionpipe" : "dip";
    const plan::Plan chain = searched(spec, "1f1b", 1);
    const ScheduledPlan modules = with_schedule(chain, {.name = name});
    const plan::Plan best = searched(spec, name, modules.plan.chunks);
    EXPECT_NEAR(row_seconds(modules.plan), row_seconds(best), 0.01 * row_seconds(best)) << name;
    const plan::Plan back = with_schedule(best, {.name = "1f1b"}).plan;
    EXPECT_NEAR(row_seconds(back), row_seconds(chain), 0.01 * row_seconds(chain)) << name;
  }
}

// Launchers cut evenly: what is compared then are schedules, not cuts. A stated cut is kept where
// there are as many stages.
TEST(PlanSchedules, KeepEvenAndStatedCuts) {
  plan::Plan plan = plan::in_pipeline(plan::small_plan(), "1f1b");
  const std::vector<int> even = plan::even_stages(plan.network, 4);
  ASSERT_NE(plan::schedule_cuts(plan, plan::chain_work(plan)).balanced, even);
  EXPECT_EQ(with_schedule(plan, {.name = "zb-h1"}).cut, StageCut::AsPlanned);
  const ScheduledPlan v = with_schedule(plan, {.name = "zb-v"});
  EXPECT_EQ(v.plan.stage_blocks, plan::even_stages(plan.network, 8));
  EXPECT_EQ(v.cut, StageCut::Even);

  plan.stage_blocks = {1, 4, 4, 1};
  for (const char* name : {"zb-h1", "vocab-1"}) {
    const ScheduledPlan stated = with_schedule(plan, {.name = name});
    EXPECT_THAT(stated.plan.stage_blocks, ElementsAre(1, 4, 4, 1)) << name;
    EXPECT_EQ(stated.cut, StageCut::AsPlanned);
  }
  const ScheduledPlan other = with_schedule(plan, {.name = "zb-v"});
  EXPECT_NE(other.cut, StageCut::AsPlanned);
  const ScheduledPlan own = with_schedule(plan, {});
  EXPECT_EQ(own.plan.stage_blocks, plan.stage_blocks);
  const std::string table = comparison_text({run_plan_schedule(own), run_plan_schedule(other)});
  EXPECT_THAT(table, HasSubstr("as planned"));
  EXPECT_THAT(table, HasSubstr(std::string(to_text(other.cut))));
  EXPECT_THAT(table, HasSubstr("cut anew for their schedule"));
}

// The cut of a plan may be better for another schedule than both of that one's own.
TEST(PlanSchedules, KeepABalancedCutWhereItIsFaster) {
  search::Problem problem;
  problem.network = "gpt3-1.3b";
  problem.cluster = "dgx-a100:2";
  problem.batch = 64;
  search::Options options;
  options.interval_draws = 0;
  options.constraints.fix(
      "tp=1,cp=1,pp=4,micro_batch=2,schedule=v-zb,chunks=2,stages=balanced,zero=1,recompute=none");
  const plan::Plan plan = search::search(search::base_plan(problem), options).best.value().plan;
  const ScheduledPlan other = with_schedule(plan, {.name = "layerpipe"});
  EXPECT_EQ(other.cut, StageCut::AsPlanned);
  EXPECT_EQ(other.plan.stage_blocks, plan.stage_blocks);
  plan::Plan even = other.plan;
  even.stage_blocks = plan::schedule_cuts(even, plan::chain_work(even)).even;
  EXPECT_LT(row_seconds(other.plan), 0.5 * row_seconds(even));
}

// With one chunk a device these would be 1F1B and GPipe.
TEST(PlanSchedules, SchedulesOfChunksHaveSome) {
  const plan::Plan plan = plan::in_pipeline(plan::small_plan(), "1f1b");
  for (const char* name : {"interleaved", "breadth-first"}) {
    EXPECT_EQ(with_schedule(plan, {.name = name}).plan.chunks, 2) << name;
    EXPECT_EQ(with_schedule(plan, {.name = name, .chunks = 1}).plan.chunks, 1) << name;
  }
  EXPECT_EQ(with_schedule(plan, {.name = "vocab-1"}).plan.chunks, 1);
}

}  // namespace
}  // namespace orrery::studies
