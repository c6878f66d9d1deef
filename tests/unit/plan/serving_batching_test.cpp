// SPDX-License-Identifier: Apache-2.0
// Continuous batching worked by hand: an iteration takes one second and one more for each 100
// tokens, unless a test says otherwise.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/serving/batching.hpp"

namespace orrery::plan {
namespace {

SimTime seconds(double value) { return to_sim_time(Seconds(value)); }

BatchEngine engine(std::int64_t kv_tokens, int stages = 1) {
  BatchEngine engine;
  engine.stages = stages;
  engine.kv_tokens = kv_tokens;
  engine.time = [](int, const Iteration& iteration) {
    return seconds(1 + static_cast<double>(iteration.tokens()) / 100);
  };
  engine.transfer = [](int, const Iteration&) { return SimTime{}; };
  return engine;
}

ServingOptions options(std::int64_t budget, std::int64_t most = 16) {
  ServingOptions options;
  options.token_budget = budget;
  options.max_requests = most;
  return options;
}

TEST(Batching, OneRequest) {
  const std::vector<Request> requests = {{seconds(5), 150, 3}};
  const BatchRun run = run_batches(requests, options(100), engine(1000));
  // Prompts of 100 and 50 tokens: 2 s and 1.5 s, then two decodes of 1.01 s.
  EXPECT_EQ(run.requests[0].first_token, seconds(8.5));
  EXPECT_EQ(run.requests[0].finished, seconds(8.5) + seconds(1.01) + seconds(1.01));
  EXPECT_EQ(run.iterations, 4);
  EXPECT_EQ(run.prefilled, 150);
  EXPECT_EQ(run.decoded, 2);
  EXPECT_EQ(run.generated, 3);
  EXPECT_EQ(run.kv_peak, 153);
}

// The second prompt gets what the first one's decode leaves of the budget.
TEST(Batching, DecodesComeFirstAndPromptsFillTheRest) {
  std::vector<Iteration> seen;
  const std::vector<Request> requests = {{seconds(0), 60, 5}, {seconds(0), 90, 1}};
  run_batches(requests, options(64), engine(1000),
              [&](const Iteration& iteration, SimTime, SimTime, std::int64_t) {
                seen.push_back(iteration);
              });
  ASSERT_GE(seen.size(), 3u);
  EXPECT_EQ(seen[0].decodes, 0);
  ASSERT_EQ(seen[0].prompts.size(), 2u);
  EXPECT_EQ(seen[0].prompts[1].tokens, 4);
  EXPECT_EQ(seen[1].decodes, 1);
  EXPECT_EQ(seen[1].keys, 61);
  EXPECT_EQ(seen[1].prompts[0].done, 4);
  EXPECT_EQ(seen[1].prompts[0].tokens, 63);
  EXPECT_EQ(seen[2].prompts[0].tokens, 23);
  EXPECT_EQ(seen[2].sampled, 2);
}

TEST(Batching, ChunksBoundOnePrompt) {
  ServingOptions chunked = options(100);
  chunked.chunk = 25;
  std::vector<std::int64_t> tokens;
  run_batches(std::vector<Request>{{seconds(0), 60, 1}}, chunked, engine(1000),
              [&](const Iteration& iteration, SimTime, SimTime, std::int64_t) {
                tokens.push_back(iteration.tokens());
              });
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{25, 25, 10}));
}

TEST(Batching, SeparatePrefillMakesDecodesWait) {
  ServingOptions separate = options(100);
  separate.prefill = Prefill::Separate;
  std::vector<Iteration> seen;
  const std::vector<Request> requests = {{seconds(0), 50, 3}, {seconds(1), 150, 1}};
  run_batches(requests, separate, engine(1000),
              [&](const Iteration& iteration, SimTime, SimTime, std::int64_t) {
                seen.push_back(iteration);
              });
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[1].decodes, 0);
  EXPECT_EQ(seen[1].prompts[0].tokens, 150);  // whole, beyond the budget
  EXPECT_EQ(seen[2].decodes, 1);
}

// 100 KV tokens: two requests of 40 + 10 would fit exactly, a third has to wait for the end of one.
TEST(Batching, AdmitsByThePredictedPeak) {
  const std::vector<Request> requests(3, Request{SimTime{}, 40, 10});
  const BatchRun run = run_batches(requests, options(1000), engine(100));
  EXPECT_EQ(run.requests[1].admitted, SimTime{});
  EXPECT_EQ(run.requests[2].admitted, run.requests[0].finished);
  EXPECT_EQ(run.kv_peak, 100);
  EXPECT_EQ(run.evictions, 0);
}

// Peaks that fall at different times are not added up: 60 + 5 ends before 20 + 60 is large.
TEST(Batching, PeaksAtDifferentTimesFitTogether) {
  const std::vector<Request> requests = {{SimTime{}, 60, 5}, {SimTime{}, 20, 60}};
  const BatchRun run = run_batches(requests, options(1000), engine(100));
  EXPECT_EQ(run.requests[1].admitted, SimTime{});
  EXPECT_EQ(run.evictions, 0);
  EXPECT_LE(run.kv_peak, 100);
}

// What is admitted gets its first token in the same iteration, so both end together, with 50 + 49
// tokens: where 98 are all there is, the second waits an iteration, and nobody is evicted.
TEST(Batching, NewcomersGetTheirFirstTokenAtOnce) {
  const std::vector<Request> requests = {{SimTime{}, 40, 10}, {SimTime(1), 40, 9}};
  const BatchRun narrow = run_batches(requests, options(1000), engine(98));
  EXPECT_EQ(narrow.evictions, 0);
  EXPECT_EQ(narrow.kv_peak, 98);
  const BatchRun fitting = run_batches(requests, options(1000), engine(99));
  EXPECT_LT(fitting.requests[1].admitted, narrow.requests[1].admitted);
  EXPECT_EQ(fitting.kv_peak, 99);
}

// Requests that were expected to end soon outgrow the cache: the younger one starts again.
TEST(Batching, WrongGuessesEvictTheYoungest) {
  ServingOptions guess = options(1000);
  guess.expected_output = 2;
  const std::vector<Request> requests = {{SimTime{}, 30, 40}, {SimTime{}, 30, 40}};
  const BatchRun run = run_batches(requests, guess, engine(100));
  EXPECT_EQ(run.requests[0].evictions, 0);
  EXPECT_EQ(run.requests[1].evictions, 1);
  EXPECT_LE(run.kv_peak, 100);
  EXPECT_EQ(run.generated, 80);
  EXPECT_EQ(run.prefilled + run.decoded, 2 * (30 + 39) + run.repeated);
  EXPECT_GT(run.requests[1].finished, run.requests[0].finished);
}

TEST(Batching, LateStopsHoldTheCacheOneIterationLonger) {
  ServingOptions late = options(1000);
  late.late_stop = true;
  const std::vector<Request> requests = {{SimTime{}, 40, 3}, {SimTime{}, 40, 6}};
  std::int64_t tokens = 0;
  const BatchRun run = run_batches(requests, late, engine(1000),
                                   [&](const Iteration& iteration, SimTime, SimTime, std::int64_t) {
                                     tokens += iteration.tokens();
                                   });
  EXPECT_EQ(run.generated, 9);
  // A token too many of the first; with the end of the second nothing is left to do.
  EXPECT_EQ(tokens, 80 + 2 + 5 + 1);
}

// Two stages: the groups alternate, so that both stages stay busy.
TEST(Batching, PipelinesOverlapTheirGroups) {
  BatchEngine two = engine(100'000, 2);
  two.time = [](int, const Iteration&) { return seconds(1); };
  const std::vector<Request> requests(2, Request{SimTime{}, 10, 50});
  const BatchRun run = run_batches(requests, options(100), two);
  EXPECT_EQ(run.iterations, 100);
  EXPECT_EQ(run.makespan, seconds(101));
  EXPECT_EQ(run.busy[0], seconds(100));
}

TEST(Batching, IdlesOnlyWithoutRequests) {
  const std::vector<Request> requests = {{seconds(0), 10, 1}, {seconds(50), 10, 1}};
  const BatchRun run = run_batches(requests, options(100), engine(1000));
  EXPECT_EQ(run.requests[1].admitted, seconds(50));
  EXPECT_EQ(run.makespan, seconds(51.1));
}

TEST(Batching, EndlessServingIsAnError) {
  BatchEngine slow = engine(1000);
  slow.time = [](int, const Iteration&) { return seconds(3e6); };
  EXPECT_THROW(run_batches(std::vector<Request>{{SimTime{}, 10, 5}}, options(100), slow), Error);
}

BatchEngine alike_stages(int stages) {
  BatchEngine alike = engine(100'000, stages);
  alike.time = [](int, const Iteration&) { return seconds(1); };
  return alike;
}

// Ten chunks through four stages of a second: one after the other 40 s, overlapped 10 + 3. Decodes
// take turns with nobody.
TEST(Batching, ChunksOfAPromptOverlapInAPipeline) {
  const std::vector<Request> requests = {{seconds(0), 1000, 3}};
  ServingOptions chunks = options(100);
  const BatchRun apart = run_batches(requests, chunks, alike_stages(4));
  EXPECT_EQ(apart.requests[0].first_token, seconds(40));
  chunks.overlap_chunks = true;
  std::vector<std::int64_t> done;
  const BatchRun run = run_batches(requests, chunks, alike_stages(4),
                                   [&](const Iteration& iteration, SimTime, SimTime, std::int64_t) {
                                     for (const PromptPart& part : iteration.prompts) {
                                       done.push_back(part.done);
                                     }
                                   });
  EXPECT_EQ(done, (std::vector<std::int64_t>{0, 100, 200, 300, 400, 500, 600, 700, 800, 900}));
  EXPECT_EQ(run.requests[0].first_token, seconds(13));
  EXPECT_EQ(run.requests[0].finished, seconds(13 + 2 * 4));
  EXPECT_EQ(run.prefilled, 1000);
  EXPECT_EQ(run.kv_peak, apart.kv_peak);
  EXPECT_EQ(run_batches(requests, chunks, alike_stages(1)).makespan,
            run_batches(requests, options(100), alike_stages(1)).makespan);
}

// The first prompt comes before the second in every iteration, whichever group has it; one that
// decodes goes on beside both.
TEST(Batching, OverlappingChunksComeInOrderOfArrival) {
  const std::vector<Request> requests = {
      {seconds(0), 50, 40}, {seconds(1.5), 300, 2}, {seconds(1.5), 300, 2}};
  ServingOptions chunks = options(100);
  chunks.overlap_chunks = true;
  const BatchRun run = run_batches(requests, chunks, alike_stages(2));
  // Groups begin in turn, every second: 100 tokens of the second request at 1.5, 99 beside a decode
  // at 2.5, 100 at 3.5 and its last at 4.5 with a group that then has its share of the requests.
  // The third one has 100 at 5.5, 98 beside two decodes, 100 and 2 more at 8.5.
  EXPECT_EQ(run.requests[0].first_token, seconds(2));
  EXPECT_EQ(run.requests[1].first_token, seconds(4.5 + 2));
  EXPECT_EQ(run.requests[2].first_token, seconds(8.5 + 2));
  EXPECT_EQ(run.requests[0].finished, seconds(2.5 + 39 * 2));
}

// A group that runs as many requests as it may leaves the chunk to the other.
TEST(Batching, FullGroupsTakeNoChunks) {
  const std::vector<Request> requests = {{seconds(0), 50, 30}, {seconds(0), 300, 2}};
  ServingOptions chunks = options(100, 1);
  chunks.overlap_chunks = true;
  const BatchRun run = run_batches(requests, chunks, alike_stages(2));
  EXPECT_EQ(run.requests[1].first_token, seconds(1 + 3 * 2));
  EXPECT_TRUE(run.lacked_requests);
}

}  // namespace
}  // namespace orrery::plan
