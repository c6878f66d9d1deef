// SPDX-License-Identifier: Apache-2.0
// Prefixes that prompts have in common: computed and held once, dropped when room is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "plan/serving/prefixes.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::HasSubstr;

// The second request computes what is its own; the first has computed the prefix by then.
TEST(ServingPrefixes, AreComputedOnce) {
  const std::vector<Request> requests = {request_of(0, 150, 4, 7, 100),
                                         request_of(2000, 130, 4, 7, 100),
                                         request_of(2000, 130, 4, 8, 100)};
  const BatchRun run = run_batches(requests, {}, unit_engine(100000));
  EXPECT_EQ(run.prefilled, 150 + 30 + 130);
  EXPECT_EQ(run.found, 100);
}

// Held once: prefix and what each request has of its own, the token of the last iteration too.
TEST(ServingPrefixes, AreHeldOnce) {
  std::vector<Request> requests = {request_of(0, 101, 50, 0, 100)};
  for (int i = 0; i < 9; ++i) {
    requests.push_back(request_of(2000, 101, 40, 0, 100));
  }
  const BatchRun run = run_batches(requests, {}, unit_engine(100000));
  EXPECT_GE(run.kv_peak, 100 + 10 * 40);
  EXPECT_LE(run.kv_peak, 100 + 10 * 51);
  // Ten at once fit a cache that holds three of them alone.
  const BatchRun small = run_batches(requests, {}, unit_engine(620));
  EXPECT_EQ(small.evictions, 0);
  EXPECT_LT(small.makespan, SimTime{70000});
  EXPECT_LE(small.kv_peak, 620);
}

// Whole pages alone are shared: 96 of 100 tokens in pages of 16.
TEST(ServingPrefixes, ShareWholePages) {
  ServingOptions options;
  options.cache_block = 16;
  const std::vector<Request> requests = {request_of(0, 150, 4, 0, 100),
                                         request_of(2000, 150, 4, 0, 100)};
  EXPECT_EQ(run_batches(requests, options, unit_engine(10000)).found, 96);
}

// A prompt that is all prefix still computes its last token.
TEST(ServingPrefixes, LastTokenIsComputed) {
  const std::vector<Request> requests = {request_of(0, 100, 4, 0, 100),
                                         request_of(2000, 100, 4, 0, 100)};
  const BatchRun run = run_batches(requests, {}, unit_engine(10000));
  EXPECT_EQ(run.found, 99);
  EXPECT_EQ(run.prefilled, 101);
}

// Unused prefixes stay until the room is needed: a request that fills the cache drops them.
TEST(ServingPrefixes, GiveWay) {
  const std::vector<Request> requests = {request_of(0, 110, 2, 0, 100), request_of(10000, 900, 60),
                                         request_of(200000, 110, 2, 0, 100)};
  const BatchRun run = run_batches(requests, {}, unit_engine(1000));
  EXPECT_EQ(run.found, 0);
  EXPECT_EQ(run.evictions, 0);
  const BatchRun large = run_batches(requests, {}, unit_engine(2000));
  EXPECT_EQ(large.found, 100);
}

TEST(ServingPrefixes, EveryRequestFinishesWithinTheCache) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Request> requests;
    std::int64_t arrival = 0;
    for (int i = 0; i < 40; ++i) {
      arrival += static_cast<std::int64_t>(random.below(5000));
      const auto prefix = static_cast<std::int64_t>(random.below(5)) - 1;
      const std::int64_t shared = prefix < 0 ? 0 : 20 * (prefix + 1);
      const auto own = static_cast<std::int64_t>(1 + random.below(60));
      requests.push_back(request_of(
          arrival, shared + own, static_cast<std::int64_t>(1 + random.below(40)), prefix, shared));
    }
    ServingOptions options;
    options.cache_block = std::int64_t{1} << random.below(4);
    options.token_budget = 64;
    options.max_requests = 32;
    options.expected_output = random.below(2) == 0 ? 0 : 5;  // wrong: evictions
    options.late_stop = random.below(2) == 0;
    options.prefill = random.below(2) == 0 ? Prefill::Chunked : Prefill::Separate;
    const auto capacity = static_cast<std::int64_t>(200 + random.below(400));
    const BatchRun run = run_batches(requests, options,
                                     unit_engine(capacity, 1 + static_cast<int>(random.below(3))));
    std::int64_t prompts = 0;
    std::int64_t outputs = 0;
    for (const ServedRequest& served : run.requests) {
      EXPECT_GT(served.finished, SimTime{});
      prompts += served.request.prompt;
      outputs += served.request.output;
    }
    EXPECT_EQ(run.generated, outputs);
    EXPECT_LE(run.kv_peak, capacity);
    if (run.evictions == 0) {
      EXPECT_EQ(run.prefilled + run.found, prompts);
    } else {
      EXPECT_GE(run.prefilled + run.found, prompts);
    }
  }
}

std::string requests_problem(const std::string& text) {
  try {
    read_members(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ServingPrefixes, TracesNameThem) {
  const RequestSpec spec = read_members(R"("requests": [
    {"prompt": 100, "output": 5, "prefix": "system", "prefix_tokens": 60},
    {"prompt": 80, "output": 5},
    {"prompt": 70, "output": 5, "prefix": "other", "prefix_tokens": 10},
    {"prompt": 90, "output": 5, "prefix": "system", "prefix_tokens": 60}])");
  ASSERT_EQ(spec.trace.size(), 4U);
  EXPECT_EQ(spec.trace[0].prefix, spec.trace[3].prefix);
  EXPECT_EQ(spec.trace[0].shared, 60);
  EXPECT_EQ(spec.trace[1].prefix, -1);
  EXPECT_NE(spec.trace[2].prefix, spec.trace[0].prefix);
  const Json written = to_json(spec);
  EXPECT_EQ(read_requests(JsonReader(written, "again")), spec);
  EXPECT_THAT(requests_problem(R"("requests": [
    {"prompt": 100, "output": 5, "prefix": "a", "prefix_tokens": 60},
    {"prompt": 100, "output": 5, "prefix": "a", "prefix_tokens": 50}])"),
              HasSubstr("prefix \"a\" has 50 tokens here and 60 before"));
  EXPECT_THAT(requests_problem(R"("requests": [
    {"prompt": 100, "output": 5, "prefix": "a", "prefix_tokens": 101}])"),
              HasSubstr("prefix_tokens = 101 of a prompt of 100"));
  EXPECT_THAT(requests_problem(R"("requests": [{"prompt": 100, "output": 5, "prefix": "a"}])"),
              HasSubstr("prefix_tokens"));
}

TEST(ServingPrefixes, GeneratedOnesFollowZipf) {
  const RequestSpec spec = read_members(R"("count": 4000, "prompt": 50, "output": 5, "seed": 3,
    "prefixes": {"count": 4, "tokens": 200, "share": 0.5, "slope": 1})");
  const Json written = to_json(spec);
  EXPECT_EQ(read_requests(JsonReader(written, "again")), spec);
  std::array<int, 4> met{};
  int with = 0;
  for (const Request& request : generate_requests(spec)) {
    EXPECT_EQ(request.prompt, request.prefix < 0 ? 50 : 250);
    if (request.prefix >= 0) {
      ++met.at(static_cast<std::size_t>(request.prefix));
      ++with;
    }
  }
  EXPECT_NEAR(with, 2000, 150);
  const double sum = 1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4;
  EXPECT_NEAR(met[0], with / sum, 0.1 * with);
  EXPECT_NEAR(met[3], with / sum / 4, 0.1 * with);
}

}  // namespace
}  // namespace orrery::plan
