// SPDX-License-Identifier: Apache-2.0
// What the space of serving plans holds: experts and their cuts, and fields without an effect.
#include "search/serving_space.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/search/served_search.hpp"

namespace orrery::search {
namespace {

// Plans say nothing that simulation passes over: ranks that share experts are tensor-parallel ones
// or those of other replicas, and one replica routes to itself.
TEST(ServingSpace, PlansHaveNoFieldsWithoutEffect) {
  const plan::Plan base = served_base_plan("deepseek-v2-lite", "hgx-h100:1");
  std::string reason;
  int spread = 0;
  for (const plan::Plan& plan : serving_layouts(base, {}, reason)) {
    const plan::BlockPlan& layout = plan.blocks.front().layout;
    EXPECT_TRUE(layout.expert_tp == 0 || (layout.ep > 1 && layout.expert_tp < layout.tp));
    spread += layout.ep > 1 && layout.tp == 1 ? 1 : 0;
  }
  EXPECT_GT(spread, 0);
}

// Whole experts on the ranks of a replica or of several, each cut by all, some or one of them.
TEST(ServingSpace, ExpertsAreCutByAnyOfTheTensorRanks) {
  const plan::Plan base = served_base_plan("mixtral-8x7b", "hgx-h100:1");
  const auto places = [&](const std::string& fix) {
    std::string reason;
    std::vector<std::pair<int, int>> found;
    for (const plan::Plan& plan : serving_layouts(base, fixed_serving(fix, 1).fixed, reason)) {
      found.emplace_back(plan.blocks.front().layout.ep, plan.blocks.front().layout.expert_tp);
    }
    return found;
  };
  using testing::UnorderedElementsAre;
  EXPECT_THAT(places("tp=8"), UnorderedElementsAre(std::pair(1, 0), std::pair(8, 1),
                                                   std::pair(4, 2), std::pair(2, 4)));
  EXPECT_THAT(places("tp=4,pp=1"),
              UnorderedElementsAre(std::pair(1, 0), std::pair(4, 1), std::pair(2, 2),
                                   std::pair(8, 1), std::pair(4, 2), std::pair(2, 0)));
  EXPECT_THAT(places("tp=8,expert_tp=2"), UnorderedElementsAre(std::pair(4, 2)));
  EXPECT_THAT(places("tp=8,expert_tp=8"), UnorderedElementsAre(std::pair(1, 0)));
  EXPECT_THAT(places("tp=8,ep=2"), UnorderedElementsAre(std::pair(2, 4)));
  EXPECT_THAT(places("tp=4,expert_tp=3"), UnorderedElementsAre());
  EXPECT_THAT(places("tp=8,tp=8,expert_tp=2,expert_tp=2"), UnorderedElementsAre(std::pair(4, 2)));
}

TEST(ServingSpace, PlacesThatExpertsCannotHaveAreExplained) {
  const plan::Plan base = served_base_plan("mixtral-8x7b", "hgx-h100:2");
  const auto reason_of = [&](const std::string& fix) {
    std::string reason;
    EXPECT_TRUE(serving_layouts(base, fixed_serving(fix, 1).fixed, reason).empty()) << fix;
    return reason;
  };
  using testing::HasSubstr;
  EXPECT_THAT(reason_of("tp=8,expert_tp=3"), HasSubstr("expert_tp = 3 does not divide tp = 8"));
  EXPECT_THAT(reason_of("tp=16,expert_tp=1"), HasSubstr("experts = 8 is not divisible by ep = 16"));
  EXPECT_THAT(reason_of("tp=8,ep=3"), HasSubstr("experts = 8 is not divisible by ep = 3"));
}

TEST(ServingSpace, WaysToCutExpertsHaveCostsOfTheirOwn) {
  const plan::Plan base = served_base_plan("mixtral-8x7b", "hgx-h100:1");
  const std::string space =
      "tp=8,token_budget=2048,max_requests=256,prefill=chunked,nano_batches=1";
  const ServingOutcome all = search_serving(base, fixed_serving(space, 100));
  ASSERT_EQ(all.found.size(), 4U);
  for (const ServingFound& found : all.found) {
    EXPECT_EQ(plan::simulate_serving(found.plan).makespan, found.simulation.makespan);
  }
  const ServingOutcome best = search_serving(base, fixed_serving(space, 1));
  EXPECT_EQ(best.found.front().simulation.makespan, all.found.front().simulation.makespan);
}

TEST(ServingSpace, ExpertTensorRanksWithoutExpertsAreNamed) {
  ServingFixes fixed;
  fix_serving("expert_tp=0", fixed);
  EXPECT_EQ(idle_serving_fixes(served_base_plan("llama3-8b", "hgx-h100:1"), fixed),
            std::vector<std::string>{"expert_tp has no effect: the network has no experts"});
}

TEST(ServingSpace, RoutingOfOneReplicaIsNamed) {
  ServingFixes fixed;
  fix_serving("routing=prefix", fixed);
  EXPECT_EQ(serving_routings(1, fixed, false), std::vector{plan::Routing::Prefix});
  EXPECT_EQ(serving_routings(1, {}, true), std::vector{plan::Routing::InTurn});
  plan::Plan plan;
  plan.dp = 1;
  EXPECT_EQ(idle_serving_fixes(plan, fixed),
            std::vector<std::string>{"routing has no effect: dp = 1"});
  EXPECT_TRUE(idle_serving_fixes(plan, {}).empty());
  plan.dp = 2;
  EXPECT_TRUE(idle_serving_fixes(plan, fixed).empty());
}

// Only what --allow names makes caches lossy.
TEST(ServingSpace, CachesHaveEightBitsWhereThatIsAllowed) {
  using testing::HasSubstr;
  const auto widths = [](const std::string& fix, std::vector<std::string> allow) {
    ServingFixes fixed = fixed_serving(fix, 1).fixed;
    allow_serving(allow, fixed);
    std::vector<bool> narrow;
    for (const plan::ServingOptions& options : serving_caches({}, fixed)) {
      narrow.push_back(options.fp8_cache);
    }
    return narrow;
  };
  const auto refused = [&](const std::string& fix, std::vector<std::string> allow) {
    try {
      widths(fix, std::move(allow));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(widths("", {}), std::vector<bool>{false});
  EXPECT_EQ(widths("", {"lossy"}), (std::vector<bool>{false, true}));
  EXPECT_EQ(widths("fp8_cache=true", {"lossy"}), std::vector<bool>{true});
  EXPECT_EQ(widths("fp8_cache=false", {}), std::vector<bool>{false});
  EXPECT_THAT(refused("fp8_cache=true", {}), HasSubstr("add --allow lossy"));
  EXPECT_THAT(refused("fp8_cache=false", {"lossy"}), HasSubstr("fp8_cache = false is fixed"));
  EXPECT_THAT(refused("", {"offload"}), HasSubstr("\"offload\" belongs to training"));
  EXPECT_THAT(refused("", {"losy"}), HasSubstr("did you mean \"lossy\""));
  EXPECT_THAT(refused("fp8_cache=yes", {}), HasSubstr("true or false"));
}

// Costs of caches of either width are kept apart.
TEST(ServingSpace, PlansOfBothWidthsAreSimulatedAsTheyAre) {
  ServingSearch search =
      fixed_serving("tp=4,token_budget=2048,max_requests=256,nano_batches=1,prefill=chunked", 100);
  allow_serving(std::vector<std::string>{"lossy"}, search.fixed);
  const ServingOutcome all = search_serving(served_base_plan("llama3-8b", "hgx-h100:1"), search);
  ASSERT_EQ(all.plans, 4);
  for (const ServingFound& found : all.found) {
    EXPECT_EQ(plan::simulate_serving(found.plan).makespan, found.simulation.makespan);
  }
  EXPECT_TRUE(all.found.front().plan.serving->options.fp8_cache);
}

TEST(ServingSpace, SharedExpertsOverlapWhereTokensTravel) {
  const auto flags = [](const std::string& network, const std::string& fix,
                        const std::string& cluster = "dgx-a100:1") {
    std::string reason;
    std::vector<bool> overlap;
    for (const plan::Plan& plan :
         serving_layouts(served_base_plan(network, cluster), fixed_serving(fix, 1).fixed, reason)) {
      overlap.push_back(plan.execution.overlap_shared_experts);
    }
    return overlap;
  };
  EXPECT_EQ(flags("deepseek-v2-lite", "tp=1,pp=1,ep=8"), std::vector<bool>{true});
  EXPECT_EQ(flags("deepseek-v2-lite", "tp=1,pp=1,ep=8,overlap_shared_experts=false"),
            std::vector<bool>{false});
  EXPECT_EQ(flags("deepseek-v2-lite", "tp=8,pp=1,ep=8,expert_tp=1"), std::vector<bool>{false});
  EXPECT_EQ(flags("deepseek-v2-lite", "tp=1,pp=1,ep=8", "hgx-h100:1"), std::vector<bool>{false});
  EXPECT_EQ(flags("mixtral-8x7b", "tp=1,pp=1,ep=8"), std::vector<bool>{false});
}

TEST(ServingSpace, ChunksOverlapWhereTheyCan) {
  plan::Plan plan;
  plan.pp = 2;
  const ServingFixes apart = fixed_serving("overlap_chunks=false", 1).fixed;
  EXPECT_EQ(serving_overlaps(plan, plan::Prefill::Chunked, {}), std::vector<bool>{true});
  EXPECT_EQ(serving_overlaps(plan, plan::Prefill::Chunked, apart), std::vector<bool>{false});
  EXPECT_EQ(serving_overlaps(plan, plan::Prefill::Separate, {}), std::vector<bool>{false});
  plan.pp = 1;
  EXPECT_EQ(serving_overlaps(plan, plan::Prefill::Chunked, {}), std::vector<bool>{false});
  EXPECT_EQ(idle_serving_fixes(plan, apart),
            std::vector<std::string>{"overlap_chunks has no effect: pp = 1"});
}

}  // namespace
}  // namespace orrery::search
