// SPDX-License-Identifier: Apache-2.0
// The search of serving plans against simulating all of them, limits, and spaces without a plan.
#include "search/serving_search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/error.hpp"

namespace orrery::search {
namespace {

plan::Plan base_plan(const std::string& network, const std::string& cluster) {
  plan::Plan base;
  base.network = models::load_network(network);
  base.cluster = topologies::load_cluster(cluster);
  base.profile = costmodel::load_profile("", base.cluster.gpu);
  base.precision = DType::Fp16;
  plan::Serving serving;
  serving.requests.count = 60;
  serving.requests.prompt = {400, 200, 2000};
  serving.requests.output = {60, 30, 300};
  base.sequence = plan::longest_request(plan::generate_requests(serving.requests));
  base.serving = std::make_shared<const plan::Serving>(serving);
  return base;
}

ServingSearch fixed(const std::string& text, std::size_t top) {
  ServingSearch search;
  search.top = top;
  if (!text.empty()) {
    fix_serving(text, search);
  }
  return search;
}

TEST(ServingSearch, TheBestEqualsSimulatingEverything) {
  const plan::Plan base = base_plan("llama3-8b", "hgx-h100:1");
  const std::string space = "token_budget=512,max_requests=256";
  const ServingOutcome all = search_serving(base, fixed(space, 1000));
  const ServingOutcome best = search_serving(base, fixed(space, 1));
  ASSERT_FALSE(all.found.empty());
  ASSERT_EQ(best.found.size(), 1u);
  EXPECT_EQ(all.pruned, 0);
  EXPECT_EQ(all.simulated, all.plans - all.infeasible);
  EXPECT_EQ(best.simulated + best.pruned + best.infeasible, best.plans);
  EXPECT_EQ(best.found.front().simulation.makespan, all.found.front().simulation.makespan);
  for (std::size_t index = 1; index < all.found.size(); ++index) {
    EXPECT_LE(all.found[index - 1].simulation.makespan, all.found[index].simulation.makespan);
  }
}

TEST(ServingSearch, FoundPlansSimulateToTheSameResult) {
  const ServingOutcome outcome =
      search_serving(base_plan("llama3-8b", "hgx-h100:1"), fixed("tp=2,token_budget=1024", 3));
  for (const ServingFound& found : outcome.found) {
    const plan::Plan again = plan::read_plan(plan::to_json(found.plan), "plan");
    EXPECT_EQ(plan::to_json(plan::simulate_serving(again)).dump(),
              plan::to_json(found.simulation).dump());
  }
}

TEST(ServingSearch, LimitsSetPlansAside) {
  const plan::Plan base = base_plan("llama3-8b", "hgx-h100:1");
  ServingSearch search = fixed("tp=1,pp=1,token_budget=512,max_requests=256", 10);
  const ServingOutcome free = search_serving(base, search);
  search.limits.per_output_token_p99 = free.found.front().simulation.per_output_token.p99 * 0.999;
  const ServingOutcome limited = search_serving(base, search);
  EXPECT_GT(limited.late, 0);
  for (const ServingFound& found : limited.found) {
    EXPECT_LE(found.simulation.per_output_token.p99, *search.limits.per_output_token_p99);
  }
}

TEST(ServingSearch, NothingFits) {
  const ServingOutcome outcome =
      search_serving(base_plan("llama3-405b", "dgx-a100:1"), fixed("token_budget=512", 1));
  EXPECT_TRUE(outcome.found.empty());
  EXPECT_EQ(outcome.infeasible, outcome.plans);
  EXPECT_THAT(outcome.closest, ::testing::HasSubstr("needs"));
  EXPECT_THAT(outcome.nearest, ::testing::HasSubstr("would hold all of them"));
}

TEST(ServingSearch, FixesAreChecked) {
  ServingSearch search;
  const auto told = [&](const std::string& text) {
    try {
      fix_serving(text, search);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(told("token_buget=3"), ::testing::HasSubstr("did you mean \"token_budget\""));
  EXPECT_THAT(told("tp"), ::testing::HasSubstr("has no value"));
  EXPECT_THAT(told("tp=0"), ::testing::HasSubstr("--fix tp"));
  EXPECT_THAT(told("prefill=whole"), ::testing::HasSubstr("chunked or separate"));
  EXPECT_THROW(search_serving(base_plan("llama3-8b", "hgx-h100:1"), fixed("tp=3", 1)), Error);
}

}  // namespace
}  // namespace orrery::search
