// SPDX-License-Identifier: Apache-2.0
// Searches of plans that serve and of plans of packs that were stopped anywhere and go on from
// their checkpoints end like ones that were not; checkpoints of other searches are refused.
#include "search/tree/kept_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "search/packed_search.hpp"
#include "tests/unit/base/testing.hpp"
#include "tests/unit/plan/plan_fixture.hpp"
#include "tests/unit/search/served_search.hpp"

namespace orrery::search {
namespace {

using orrery::testing::message_of;
using ::testing::HasSubstr;

std::string kept_file(const std::string& name) { return ::testing::TempDir() + "kept_" + name; }

std::string answer_of(const ServingOutcome& outcome) {
  std::string text;
  for (const std::int64_t count : {outcome.plans, outcome.infeasible, outcome.pruned, outcome.late,
                                   outcome.simulated, outcome.unexplored, outcome.as_fast}) {
    text += std::to_string(count) + " ";
  }
  text += std::to_string(outcome.lower_bound.value()) + " " + std::to_string(outcome.gap_fraction);
  for (const ServingFound& found : outcome.found) {
    text += "\n" + plan::to_json(found.plan).dump(-1) + to_json(found.simulation).dump(-1);
  }
  return text;
}

ServingSearch several_plans() {
  ServingSearch search = fixed_serving("prefill=chunked,token_budget=512,max_requests=64", 3);
  search.limits.per_output_token_p99 = Seconds(0.012);  // some are late
  search.jobs = 1;
  return search;
}

TEST(ServingCheckpoint, GoesOnFromWhereItWasStopped) {
  const plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  const ServingOutcome whole = search_serving(base, several_plans());
  EXPECT_GT(whole.late, 0);
  EXPECT_GT(whole.pruned, 0);
  const auto tried = static_cast<int>(whole.plans - whole.infeasible);
  ASSERT_GE(tried, 12);
  for (int taken = 0; taken < tried; taken += 3) {
    ServingSearch search = several_plans();
    search.checkpoint = kept_file("serving");
    int left = taken;
    search.stop = [&left] { return left-- <= 0; };
    EXPECT_EQ(search_serving(base, search).unexplored, tried - taken);
    search = several_plans();
    search.resume = kept_file("serving");
    search.jobs = taken % 2 + 1;
    int asked = 0;
    search.stop = [&asked] { return ++asked < 0; };
    EXPECT_EQ(answer_of(search_serving(base, search)), answer_of(whole)) << taken;
    EXPECT_EQ(asked, tried - taken);  // the others are not looked at again
  }
}

// However short the time of a run is: one that goes on bounds one more plan and, when all are
// bounded, judges one more.
TEST(ServingCheckpoint, ComesForwardUnderAnyTimeLimit) {
  const plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  const ServingOutcome whole = search_serving(base, several_plans());
  ServingSearch search = several_plans();
  search.checkpoint = kept_file("limited");
  search.time_limit = Seconds(1e-9);
  const std::int64_t most = 2 * (whole.plans - whole.infeasible) + 1;
  ServingOutcome outcome = search_serving(base, search);
  std::int64_t runs = 1;
  for (; outcome.timed_out && runs <= most; ++runs) {
    search.resume = search.checkpoint;
    outcome = search_serving(base, search);
  }
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_GT(runs, most / 2);
  EXPECT_EQ(answer_of(outcome), answer_of(whole));
}

TEST(ServingCheckpoint, OtherSearchesAreRefused) {
  const plan::Plan base = served_base_plan("llama3-8b", "hgx-h100:1");
  ServingSearch search = fixed_serving("tp=1,pp=1,token_budget=512,max_requests=256", 3);
  search.checkpoint = kept_file("refused");
  (void)search_serving(base, search);
  const auto refused = [&](const plan::Plan& other, const auto& change) {
    ServingSearch again = search;
    again.checkpoint.clear();
    again.resume = search.checkpoint;
    change(again);
    return message_of([&] { (void)search_serving(other, again); });
  };
  EXPECT_THAT(refused(served_base_plan("llama3-8b", "hgx-h100:2"), [](ServingSearch&) {}),
              HasSubstr("cluster"));
  plan::Plan other = base;
  plan::Serving serving = *base.serving;
  serving.requests.count = 61;
  other.serving = std::make_shared<const plan::Serving>(serving);
  EXPECT_THAT(refused(other, [](ServingSearch&) {}), HasSubstr("workload"));
  EXPECT_THAT(refused(base, [](ServingSearch& one) { one.top = 2; }), HasSubstr("--top"));
  EXPECT_THAT(refused(base, [](ServingSearch& one) { fix_serving("chunk=64", one.fixed); }),
              HasSubstr("--fix"));
  EXPECT_THAT(refused(base, [](ServingSearch& one) { one.limits.first_token_p99 = Seconds(1); }),
              HasSubstr("--max-first-token"));
  EXPECT_THAT(
      refused(base, [](ServingSearch& one) { one.limits.per_output_token_p99 = Seconds(1); }),
      HasSubstr("--max-output-token"));
}

std::vector<std::int64_t> few_lengths() {
  std::vector<std::int64_t> lengths(12, 1024);
  lengths.insert(lengths.end(), 4, 4096);
  return lengths;
}

plan::Plan packed_base() {
  models::NetworkSpec spec = plan::small_spec();
  spec.sequence = 4096;
  plan::Plan base = plan::small_plan(spec, "dgx-a100:1");
  base.batch = static_cast<std::int64_t>(few_lengths().size());
  base.sequence = spec.sequence;
  return base;
}

Options packed_options(const std::string& schedule) {
  Options options;
  options.constraints.choose_schedule(schedule);
  options.constraints.fix("sequence_parallel=false,recompute=none");
  options.jobs = 1;
  options.interval_draws = 0;
  options.top = 2;
  return options;
}

std::string answer_of(const Outcome& outcome) {
  std::string text;
  for (const std::int64_t count :
       {outcome.plans, outcome.infeasible, outcome.simulated, outcome.unexplored}) {
    text += std::to_string(count) + " ";
  }
  const auto add = [&](const Found& found) {
    text += "\n" + plan::to_json(found.plan).dump(-1) +
            std::to_string(found.simulation.iteration_time.value());
  };
  if (outcome.best) {
    add(*outcome.best);
  }
  for (const Found& found : outcome.alternatives) {
    add(found);
  }
  return text;
}

// Between layouts, and between those that are taken.
TEST(PackedCheckpoint, GoesOnFromWhereItWasStopped) {
  const std::vector<std::int64_t> lengths = few_lengths();
  const plan::Plan base = packed_base();
  for (const char* schedule : {"flexsp", "dynapipe"}) {
    int all = 0;
    Options counts = packed_options(schedule);
    counts.stop = [&all] { return ++all < 0; };
    const std::string whole = answer_of(search_packed(base, counts, lengths));
    ASSERT_GE(all, 6) << schedule;
    for (int after = 0; after < all; ++after) {
      Options options = packed_options(schedule);
      options.checkpoint = kept_file("packed");
      int left = after;
      options.stop = [&left] { return left-- <= 0; };
      EXPECT_TRUE(search_packed(base, options, lengths).interrupted);
      Options again = packed_options(schedule);
      again.resume = options.checkpoint;
      int asked = 0;
      again.stop = [&asked] { return ++asked < 0; };
      EXPECT_EQ(answer_of(search_packed(base, again, lengths)), whole) << schedule << after;
      EXPECT_LE(asked, all - after + 2) << schedule;  // what was tried is not tried again
    }
  }
}

// However short the time of a run is: one that goes on asks a layout more.
TEST(PackedCheckpoint, ComesForwardUnderAnyTimeLimit) {
  const std::vector<std::int64_t> lengths = few_lengths();
  for (const char* schedule : {"flexsp", "dynapipe"}) {
    const Outcome whole = search_packed(packed_base(), packed_options(schedule), lengths);
    Options options = packed_options(schedule);
    options.checkpoint = kept_file("packed_limited");
    options.time_limit = Seconds(1e-9);
    Outcome outcome = search_packed(packed_base(), options, lengths);
    std::int64_t runs = 1;
    for (; outcome.timed_out && runs <= 2 * whole.plans; ++runs) {
      options.resume = options.checkpoint;
      outcome = search_packed(packed_base(), options, lengths);
    }
    EXPECT_FALSE(outcome.timed_out) << schedule;
    EXPECT_GT(runs, 3) << schedule;
    EXPECT_EQ(answer_of(outcome), answer_of(whole)) << schedule;
  }
}

// What was found before a time limit is listed, not only the fastest plan.
TEST(PackedSearch, ListsWhatWasFoundBeforeATimeLimit) {
  const std::vector<std::int64_t> lengths = few_lengths();
  for (const char* schedule : {"flexsp", "dynapipe"}) {
    const Outcome whole = search_packed(packed_base(), packed_options(schedule), lengths);
    ASSERT_EQ(whole.alternatives.size(), 2u);
    Options options = packed_options(schedule);
    options.checkpoint = kept_file("listed");
    auto left = whole.plans;  // all layouts are asked, one is taken
    options.stop = [&left] { return left-- <= 0; };
    EXPECT_TRUE(search_packed(packed_base(), options, lengths).alternatives.empty());
    Options again = packed_options(schedule);
    again.resume = options.checkpoint;
    again.time_limit = Seconds(1e-9);
    const Outcome late = search_packed(packed_base(), again, lengths);
    EXPECT_EQ(answer_of(late), answer_of(whole)) << schedule;
  }
}

TEST(PackedCheckpoint, OtherSearchesAreRefused) {
  const std::vector<std::int64_t> lengths = few_lengths();
  Options options = packed_options("dynapipe");
  options.constraints.fix("tp=1,pp=2");
  options.checkpoint = kept_file("other");
  (void)search_packed(packed_base(), options, lengths);
  const auto refused = [&](const std::vector<std::int64_t>& others, const auto& change) {
    Options again = options;
    again.checkpoint.clear();
    again.resume = options.checkpoint;
    change(again);
    return message_of([&] { (void)search_packed(packed_base(), again, others); });
  };
  std::vector<std::int64_t> others = lengths;
  others.front() = 1023;
  EXPECT_THAT(refused(others, [](Options&) {}), HasSubstr("--lengths"));
  EXPECT_THAT(refused(lengths, [](Options& one) { one.constraints.fix("zero=0"); }),
              HasSubstr("--fix"));
  EXPECT_THAT(refused(lengths, [](Options& one) { one.top = 9; }), HasSubstr("--top"));
}

}  // namespace
}  // namespace orrery::search
