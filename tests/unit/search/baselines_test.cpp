// SPDX-License-Identifier: Apache-2.0
// Limited searches: each stays within its restriction, its time is a simulation of its plan, and
// the whole space is never slower than a restriction of it.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/error.hpp"
#include "search/baseline.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

const Baseline& named(const std::string& name) { return *find_baselines({name}, "test").front(); }

Options one_thread() {
  Options options;
  options.jobs = 1;
  return options;
}

TEST(BaselinesTest, NamesAreFoundOnceAndInTheOrderOfTheTable) {
  EXPECT_EQ(find_baselines({"all", "dp"}, "test").size(), baseline_table().size());
  EXPECT_EQ(find_baselines({"dp", "dp"}, "test").size(), 1U);
  EXPECT_TRUE(find_baselines({}, "test").empty());
  try {
    find_baselines({"galvatronn"}, "--like");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("galvatron"), std::string::npos) << error.what();
  }
}

TEST(BaselinesTest, EveryLimitedSearchOfThePapersIsThere) {
  std::set<std::string_view> names;
  for (const Baseline* baseline : baseline_table()) {
    EXPECT_FALSE(baseline->source.empty());
    names.insert(baseline->name);
  }
  for (const char* name :
       {"dp", "tp", "pp", "fsdp", "dp+tp", "dp+pp", "megatron", "galvatron", "alpa", "pipedream"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(BaselinesTest, ARestrictionIsNeverFasterAndItsTimeIsSimulated) {
  const plan::Plan base = base_plan();
  const Outcome whole = search(base, one_thread());
  ASSERT_TRUE(whole.best);
  for (const Baseline* baseline : baseline_table()) {
    const BaselineChoice choice = choose(*baseline, base, one_thread());
    ASSERT_TRUE(choice.found) << baseline->name << ": " << choice.note;
    const plan::Simulation again = plan::simulate(choice.found->plan);
    EXPECT_EQ(again.iteration_time, choice.found->simulation.iteration_time) << baseline->name;
    EXPECT_NO_THROW(plan::check_plan(choice.found->plan, "test"));
    if (choice.found->plan.blocks.size() == 1) {
      EXPECT_GE(again.iteration_time, whole.best->simulation.iteration_time) << baseline->name;
    }
  }
}

TEST(BaselinesTest, DegreesStayWithinTheirRestriction) {
  const plan::Plan base = base_plan();
  const auto plan_of = [&](const char* name) {
    return choose(named(name), base, one_thread()).found.value().plan;
  };
  EXPECT_EQ(plan_of("dp").dp, 4);
  EXPECT_EQ(plan_of("dp").blocks.front().layout.zero_stage, 0);
  EXPECT_EQ(plan_of("tp").blocks.front().layout.tp, 4);
  EXPECT_EQ(plan_of("pp").pp, 4);
  EXPECT_EQ(plan_of("fsdp").dp, 4);
  EXPECT_EQ(plan_of("fsdp").blocks.front().layout.zero_stage, 3);
  EXPECT_EQ(plan_of("dp+tp").pp, 1);
  EXPECT_EQ(plan_of("dp+pp").blocks.front().layout.tp, 1);
  EXPECT_EQ(plan_of("alpa").schedule, "1f1b");
  EXPECT_EQ(plan_of("pipedream").blocks.front().layout.tp, 1);
}

// A network that one GPU holds has model-parallel size 1; one that two hold, size 2 with tp first.
TEST(BaselinesTest, MegatronTakesTheSmallestModelParallelSizeThatFits) {
  // Large enough that half of the network is more than the buffers of another communicator.
  plan::Plan base = base_plan({small_spec(24), "dgx-a100:1", {"node.gpus=4"}, 64, 2048});
  const BaselineChoice roomy = choose(named("megatron"), base, one_thread());
  ASSERT_TRUE(roomy.found);
  EXPECT_EQ(roomy.found->plan.blocks.front().layout.tp * roomy.found->plan.pp, 1);

  Options alone = one_thread();
  alone.constraints.fix("tp=1,pp=1,cp=1");
  alone.constraints.forbid("zero=2,zero=3");
  auto least = static_cast<std::int64_t>(base.cluster.gpu.memory.bytes().value());
  enumerate(base, alone.constraints,
            [&](const plan::Plan& plan, const plan::Simulation&, plan::Simulator& all) {
              std::int64_t needs = 0;
              for (const plan::StageMemory& stage : all.memory(plan)) {
                needs = std::max(needs, static_cast<std::int64_t>(stage.total().bytes().value()));
              }
              least = std::min(least, needs);
            });
  base.memory_reserve =
      ByteCount(static_cast<std::int64_t>(base.cluster.gpu.memory.bytes().value()) - least + 1);
  const BaselineChoice tight = choose(named("megatron"), base, one_thread());
  ASSERT_TRUE(tight.found) << tight.note;
  EXPECT_EQ(tight.found->plan.blocks.front().layout.tp, 2);
  EXPECT_EQ(tight.found->plan.pp, 1);
}

// What a limited search had no time for is said beside its choice.
TEST(BaselinesTest, ATimeLimitIsNoted) {
  Options options = one_thread();
  const plan::Plan base = base_plan();
  EXPECT_EQ(choose(named("dp+tp"), base, options).note, "");
  options.time_limit = Seconds(1e-9);
  const BaselineChoice cut = choose(named("dp+tp"), base, options);
  EXPECT_TRUE(cut.found);
  EXPECT_EQ(cut.note, "the time limit ended its search");
}

TEST(BaselinesTest, ContradictionsAreReasonsAndNotErrors) {
  Options options = one_thread();
  options.constraints.fix("tp=2");
  const BaselineChoice choice = choose(named("dp"), base_plan(), options);
  EXPECT_FALSE(choice.found);
  EXPECT_NE(choice.note.find("tp is fixed to both 2 and 1"), std::string::npos) << choice.note;
}

}  // namespace
}  // namespace orrery::search
