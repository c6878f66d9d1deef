// SPDX-License-Identifier: Apache-2.0
// The search of serving plans against simulating all of them, limits, and spaces without a plan.
#include "search/serving_search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/unit/search/served_search.hpp"

namespace orrery::search {
namespace {

TEST(ServingSearch, TheBestEqualsSimulatingEverything) {
  const plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  const std::string space = "token_budget=512,max_requests=256";
  const ServingOutcome all = search_serving(base, fixed_serving(space, 1000));
  const ServingOutcome best = search_serving(base, fixed_serving(space, 1));
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

// Threads and runs that are given up change nothing but counts of plans that cannot be listed.
TEST(ServingSearch, ThreadsChangeNothing) {
  plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  for (const double rate : {0.0, 40.0}) {
    plan::Serving serving = *base.serving;
    serving.requests.arrivals = rate > 0 ? plan::Arrivals::Poisson : plan::Arrivals::AtOnce;
    serving.requests.requests_per_second = rate;
    base.serving = std::make_shared<const plan::Serving>(serving);
    ServingSearch search = fixed_serving("pp=1,token_budget=512,token_budget=2048", 2);
    search.jobs = 1;
    const ServingOutcome one = search_serving(base, search);
    search.jobs = 4;
    const ServingOutcome four = search_serving(base, search);
    search.top = 1000;  // nothing is left out
    const ServingOutcome all = search_serving(base, search);
    EXPECT_GT(one.pruned, 0);
    EXPECT_EQ(all.pruned, 0);
    EXPECT_EQ(one.pruned, four.pruned);
    EXPECT_EQ(one.simulated, four.simulated);
    EXPECT_EQ(one.as_fast, four.as_fast);
    EXPECT_EQ(one.as_fast, all.as_fast);
    ASSERT_EQ(one.found.size(), 2U);
    ASSERT_EQ(four.found.size(), 2U);
    for (std::size_t row = 0; row < one.found.size(); ++row) {
      for (const ServingOutcome* other : {&four, &all}) {
        const ServingFound& found = other->found[row];
        EXPECT_EQ(one.found[row].plan.serving->options, found.plan.serving->options);
        EXPECT_EQ(one.found[row].plan.blocks, found.plan.blocks);
        EXPECT_EQ(plan::to_json(one.found[row].simulation).dump(),
                  plan::to_json(found.simulation).dump());
      }
    }
  }
}

// A run that was given up, its first replica idle, is not taken for that of a plan with more
// requests at once: whatever the order of the plans, the best is that of all simulated alone.
TEST(ServingSearch, UnequalReplicasInStepAreNotTakenForOneAnother) {
  plan::Plan base = served_base_plan("mixtral-8x7b", "hgx-h100:1");
  plan::Serving serving;
  for (int pair = 0; pair < 40; ++pair) {
    const SimTime arrival = to_sim_time(Seconds(0.1 * pair));
    serving.requests.trace.push_back({.arrival = arrival, .prompt = 10, .output = 1});
    serving.requests.trace.push_back({.arrival = arrival, .prompt = 10, .output = 600});
  }
  base.serving = std::make_shared<const plan::Serving>(serving);
  base.sequence = 610;
  const std::string space =
      "tp=4,pp=1,ep=8,token_budget=2048,prefill=chunked,nano_batches=1,routing=in-turn,";
  ServingSearch search = fixed_serving(space + "max_requests=8,max_requests=2,max_requests=64", 1);
  for (const int jobs : {1, 4}) {
    search.jobs = jobs;
    const ServingOutcome outcome = search_serving(base, search);
    EXPECT_EQ(outcome.pruned, 1);
    ASSERT_EQ(outcome.found.size(), 1U);
    const ServingFound& best = outcome.found.front();
    EXPECT_EQ(best.plan.serving->options.max_requests, 64) << jobs;
    for (const int most : {2, 8, 64}) {
      plan::Plan alone = best.plan;
      serving.options = best.plan.serving->options;
      serving.options.max_requests = most;
      alone.serving = std::make_shared<const plan::Serving>(serving);
      const plan::ServingSimulation simulation = plan::simulate_serving(alone);
      EXPECT_EQ(simulation.makespan == best.simulation.makespan, most == 64) << most;
      EXPECT_GE(simulation.makespan, best.simulation.makespan);
    }
  }
}

// One request at a time takes longer than time is counted. The clock ends that run where the plan
// before it is known, however many threads there are; alone it is an error.
TEST(ServingSearch, ThreadsReportTheErrorsOfOne) {
  plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  plan::Serving serving;
  serving.requests.count = 40;
  serving.requests.prompt = {10};
  serving.requests.output = {200};
  serving.options.host_per_iteration = Seconds(1000);
  base.serving = std::make_shared<const plan::Serving>(serving);
  base.sequence = 210;
  const std::string space = "tp=8,pp=1,token_budget=2048,prefill=chunked,nano_batches=1,";
  for (const int jobs : {1, 2}) {
    ServingSearch search = fixed_serving(space + "max_requests=64,max_requests=1", 1);
    search.jobs = jobs;
    const ServingOutcome outcome = search_serving(base, search);
    ASSERT_EQ(outcome.found.size(), 1U);
    EXPECT_EQ(outcome.found.front().plan.serving->options.max_requests, 64);
    EXPECT_EQ(outcome.pruned, 1);
    search.top = 2;  // both are listed
    try {
      search_serving(base, search);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("more than 53 days"));
    }
  }
}

// Under light load the first plan keeps up and nobody waits less; no two rows are of one kind.
TEST(ServingSearch, LightLoadIsRankedByWaiting) {
  plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  plan::Serving serving = *base.serving;
  serving.requests.arrivals = plan::Arrivals::Poisson;
  serving.requests.requests_per_second = 4;
  base.serving = std::make_shared<const plan::Serving>(serving);
  const std::string space = "pp=1,nano_batches=1,token_budget=512,token_budget=2048,max_requests=";
  const ServingOutcome outcome = search_serving(base, fixed_serving(space + "256", 100));
  EXPECT_TRUE(outcome.over_time);
  EXPECT_GT(outcome.as_fast, 1);
  EXPECT_EQ(outcome.found.size(), 8U);  // four degrees, two prefills
  const plan::ServingSimulation& first = outcome.found.front().simulation;
  for (const ServingFound& other : outcome.found) {
    EXPECT_LE(first.makespan, other.simulation.makespan * 1.01);
    if (other.simulation.makespan <= outcome.lower_bound * 1.01) {
      EXPECT_LE(first.first_token.p99, other.simulation.first_token.p99 * 1.01);
    }
  }
  const ServingOutcome one = search_serving(base, fixed_serving(space + "256", 1));
  EXPECT_EQ(one.found.front().plan.serving->options, outcome.found.front().plan.serving->options);
  EXPECT_EQ(one.found.front().plan.blocks, outcome.found.front().plan.blocks);
}

// Experts over one replica or several, requests in turn or by prefix: all of it is in the space,
// and bounds leave nothing out. Prefixes are long, so that routing decides.
TEST(ServingSearch, ExpertsAndPrefixesAreSearched) {
  plan::Plan base = served_base_plan("deepseek-v2-lite", "hgx-h100:1");
  plan::Serving serving = *base.serving;
  serving.requests.count = 200;
  serving.requests.arrivals = plan::Arrivals::Poisson;
  serving.requests.requests_per_second = 50;
  serving.requests.prefixes = {.count = 30, .tokens = 12000, .share = 1, .slope = 1};
  base.serving = std::make_shared<const plan::Serving>(serving);
  base.sequence = plan::longest_request(plan::generate_requests(serving.requests));
  const std::string space =
      "pp=1,tp=1,token_budget=2048,max_requests=256,prefill=chunked,nano_batches=1";
  const ServingOutcome all = search_serving(base, fixed_serving(space, 100));
  const ServingOutcome best = search_serving(base, fixed_serving(space, 1));
  EXPECT_EQ(all.plans, 4);  // ep = 1 and 8, routed in turn and by prefix
  EXPECT_EQ(all.simulated, 4);
  EXPECT_EQ(best.found.front().simulation.makespan, all.found.front().simulation.makespan);
  std::int64_t hits_in_turn = 0;
  std::int64_t hits_by_prefix = 0;
  for (const ServingFound& found : all.found) {
    (found.plan.serving->options.routing == plan::Routing::Prefix ? hits_by_prefix
                                                                  : hits_in_turn) +=
        found.simulation.found_tokens;
  }
  EXPECT_GT(hits_by_prefix, hits_in_turn);
  EXPECT_EQ(all.found.front().plan.serving->options.routing, plan::Routing::Prefix);
}

TEST(ServingSearch, FoundPlansSimulateToTheSameResult) {
  const ServingOutcome outcome = search_serving(served_base_plan("llama3-8b", "hgx-h100:1"),
                                                fixed_serving("tp=2,token_budget=1024", 3));
  for (const ServingFound& found : outcome.found) {
    const plan::Plan again = plan::read_plan(plan::to_json(found.plan), "plan");
    EXPECT_EQ(plan::to_json(plan::simulate_serving(again)).dump(),
              plan::to_json(found.simulation).dump());
  }
}

TEST(ServingSearch, LimitsSetPlansAside) {
  const plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  ServingSearch search = fixed_serving("tp=1,pp=1,token_budget=512,max_requests=256", 10);
  const ServingOutcome free = search_serving(base, search);
  search.limits.per_output_token_p99 = free.found.front().simulation.per_output_token.p99 * 0.999;
  const ServingOutcome limited = search_serving(base, search);
  EXPECT_GT(limited.late, 0);
  for (const ServingFound& found : limited.found) {
    EXPECT_LE(found.simulation.per_output_token.p99, *search.limits.per_output_token_p99);
  }
}

// Plans are tried in order of their bound, so what is left open says how far the best may be.
TEST(ServingSearch, ALimitOnTimeWaitsForAPlanAndStatesTheGap) {
  const plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  ServingSearch search = fixed_serving("token_budget=512,max_requests=256", 5);
  const ServingOutcome whole = search_serving(base, search);
  EXPECT_FALSE(whole.timed_out);
  EXPECT_EQ(whole.unexplored, 0);
  EXPECT_EQ(whole.gap_fraction, 0);
  EXPECT_EQ(whole.lower_bound, whole.found.front().simulation.makespan);

  search.time_limit = Seconds(1e-9);
  for (const int jobs : {1, 4}) {  // no thread takes a second one
    search.jobs = jobs;
    const ServingOutcome cut = search_serving(base, search);
    EXPECT_TRUE(cut.timed_out);
    EXPECT_FALSE(cut.interrupted);
    EXPECT_EQ(cut.simulated, 1);
    EXPECT_EQ(cut.simulated + cut.unexplored + cut.infeasible, cut.plans);
    ASSERT_EQ(cut.found.size(), 1U);
    EXPECT_GT(cut.gap_fraction, 0);
    EXPECT_LT(cut.lower_bound, cut.found.front().simulation.makespan);
    EXPECT_LE(cut.lower_bound, whole.found.front().simulation.makespan);
  }
}

// Plans that were taken before the end are judged, whichever thread has them.
TEST(ServingSearch, PlansTakenBeforeTheEndAreJudged) {
  const plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  ServingSearch search = fixed_serving("token_budget=512,max_requests=256", 100);
  constexpr int kTaken = 5;
  for (const int jobs : {1, 4}) {
    search.jobs = jobs;
    int left = kTaken;
    search.stop = [&left] { return left-- <= 0; };
    const ServingOutcome cut = search_serving(base, search);
    EXPECT_TRUE(cut.interrupted);
    EXPECT_EQ(cut.simulated + cut.pruned, kTaken);
    EXPECT_EQ(cut.found.size(), static_cast<std::size_t>(cut.simulated));
    EXPECT_GT(cut.unexplored, 0);
    EXPECT_EQ(kTaken + cut.unexplored + cut.infeasible, cut.plans);
  }
}

// A limit on time waits for the first plan, and for no other.
TEST(ServingSearch, TheFirstPlanIsWaitedFor) {
  ServingSearch search = fixed_serving("token_budget=512,max_requests=256", 100);
  search.time_limit = Seconds(1e-9);
  for (const int jobs : {1, 4}) {
    search.jobs = jobs;
    const ServingOutcome cut = search_serving(served_base_plan("llama3-8b", "hgx-h100:1"), search);
    EXPECT_TRUE(cut.timed_out);
    EXPECT_EQ(cut.found.size(), 1U);
  }
}

TEST(ServingSearch, NothingFits) {
  const ServingOutcome outcome =
      search_serving(served_base_plan("llama3-405b", "dgx-a100:1"),
                     fixed_serving("token_budget=512,offload_parameters=device", 1));
  EXPECT_TRUE(outcome.found.empty());
  EXPECT_EQ(outcome.infeasible, outcome.plans);
  EXPECT_THAT(outcome.closest, ::testing::HasSubstr("needs"));
  EXPECT_THAT(outcome.nearest, ::testing::HasSubstr("would hold all of them"));
}

// DeepSeek-V3's experts are too large for one GPU, not for sixteen.
TEST(ServingSearch, ExpertsOverMoreRanksMayFit) {
  plan::Plan base = served_base_plan("deepseek-v3", "hgx-h100:4");
  base.precision = DType::Fp8;
  const ServingOutcome outcome =
      search_serving(base, fixed_serving("tp=1,pp=1,ep=1,token_budget=512,max_requests=256", 1));
  EXPECT_TRUE(outcome.found.empty());
  EXPECT_THAT(outcome.nearest, ::testing::HasSubstr("ep = 16 would hold all of them"));
  EXPECT_FALSE(
      search_serving(base, fixed_serving("tp=1,pp=1,ep=16,token_budget=512,max_requests=256", 1))
          .found.empty());
}

TEST(ServingSearch, FixesAreChecked) {
  ServingSearch search;
  const auto told = [&](const std::string& text) {
    try {
      fix_serving(text, search.fixed);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(told("token_buget=3"), ::testing::HasSubstr("did you mean \"token_budget\""));
  EXPECT_THAT(told("tp"), ::testing::HasSubstr("has no value"));
  EXPECT_THAT(told("tp=0"), ::testing::HasSubstr("--fix tp"));
  // As plan documents.
  EXPECT_THAT(told("nano_batches=9"), ::testing::HasSubstr("out of range (1 to 8)"));
  EXPECT_THAT(told("cache_block=4097"), ::testing::HasSubstr("out of range (1 to 4096)"));
  EXPECT_THAT(told("nano_batches=8"), ::testing::HasSubstr("no error"));
  EXPECT_THAT(told("prefill=whole"), ::testing::HasSubstr("chunked or separate"));
  EXPECT_THAT(told("all_reduce=stars"), ::testing::HasSubstr("star"));
  EXPECT_THAT(told("offload_parameters=tape"), ::testing::HasSubstr("tape"));
  EXPECT_THAT(told("offload_share=1.5"), ::testing::HasSubstr("out of range"));
  EXPECT_THROW(
      search_serving(served_base_plan("llama3-8b", "hgx-h100:1"), fixed_serving("tp=3", 1)), Error);
  try {
    search_serving(served_base_plan("llama3-8b", "hgx-h100:1"), fixed_serving("tp=8,ep=4", 1));
    FAIL() << "experts where there are none";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("llama3-8b has no experts"));
  }
}

// What contradicts itself is named, whatever layouts there are; few tokens hold as many requests.
TEST(ServingSearch, TokensAndRequestsThatContradictAreNamed) {
  const plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  const auto told = [&](const std::string& text) -> std::string {
    try {
      return std::to_string(search_serving(base, fixed_serving(text, 1)).plans) + " plans";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(told("tp=2,prefill=chunked,token_budget=64,max_requests=256"),
              ::testing::HasSubstr("max_requests = 256 is more than token_budget = 64"));
  EXPECT_THAT(told("prefill=separate,chunk=128"),
              ::testing::HasSubstr("chunk = 128 belongs to prefill = chunked"));
  EXPECT_EQ(told("tp=2,pp=1,prefill=chunked,token_budget=64,nano_batches=1"), "1 plans");
  // One layout of a dense network for every tp and pp, none that spreads experts.
  EXPECT_EQ(told("prefill=chunked,token_budget=512,max_requests=256,nano_batches=1"), "10 plans");
}

}  // namespace
}  // namespace orrery::search
