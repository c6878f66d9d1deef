// SPDX-License-Identifier: Apache-2.0
// Continuous batching over random requests, caches, pipelines and durations.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "plan/serving/admission.hpp"
#include "plan/serving/batching.hpp"
#include "plan/serving/engine.hpp"
#include "plan/serving/routing.hpp"

namespace orrery::plan {
namespace {

struct Case {
  std::vector<Request> requests;
  ServingOptions options;
  BatchEngine engine;
};

Case any_case() {
  Case drawn;
  const auto count = *rc::gen::inRange<std::size_t>(1, 40);
  SimTime arrival;
  for (std::size_t index = 0; index < count; ++index) {
    arrival += SimTime{*rc::gen::inRange<std::int64_t>(0, 3'000)};
    drawn.requests.push_back(
        {arrival, *rc::gen::inRange<std::int64_t>(1, 120), *rc::gen::inRange<std::int64_t>(1, 60)});
  }
  ServingOptions& options = drawn.options;
  options.max_requests = *rc::gen::inRange<std::int64_t>(1, 20);
  options.token_budget = options.max_requests + *rc::gen::inRange<std::int64_t>(0, 100);
  options.prefill = *rc::gen::element(Prefill::Chunked, Prefill::Separate);
  options.chunk = options.prefill == Prefill::Chunked ? *rc::gen::inRange<std::int64_t>(0, 40) : 0;
  options.expected_output = *rc::gen::element<std::int64_t>(0, 0, 1, 20, 200);
  options.late_stop = *rc::gen::arbitrary<bool>();
  options.overlap_chunks = *rc::gen::arbitrary<bool>();
  BatchEngine& engine = drawn.engine;
  engine.stages = *rc::gen::inRange(1, 4);
  engine.kv_tokens = longest_request(drawn.requests) + *rc::gen::inRange<std::int64_t>(0, 300);
  engine.sliding = {*rc::gen::element<std::int64_t>(0, 0, 8, 90), *rc::gen::element(0.0, 0.4, 1.0),
                    *rc::gen::inRange<std::int64_t>(0, 120)};
  const auto per_token = *rc::gen::inRange<std::int64_t>(1, 20);
  engine.time = [per_token](int stage, const Iteration& iteration) {
    return SimTime{100 + stage + per_token * iteration.tokens()};
  };
  engine.transfer = [](int, const Iteration&) { return SimTime{7}; };
  return drawn;
}

// Pages of any size, and a cache which holds little more than the longest request does, that may
// free some of its tokens.
Case tight_case() {
  Case drawn = any_case();
  drawn.options.cache_block = *rc::gen::element<std::int64_t>(1, 3, 16);
  const std::int64_t longest = longest_request(drawn.requests);
  std::int64_t tokens = drawn.options.cache_block;
  while (CachePages(drawn.options.cache_block, tokens, drawn.engine.sliding).longest() < longest) {
    tokens += drawn.options.cache_block;
  }
  drawn.engine.kv_tokens = tokens + *rc::gen::inRange<std::int64_t>(0, 300);
  return drawn;
}

TEST(ServingProperty, EveryRequestFinishesAndTokensAreCountedOnce) {
  EXPECT_TRUE(rc::check([] {
    const Case drawn = tight_case();
    const BatchRun run = run_batches(drawn.requests, drawn.options, drawn.engine);
    std::int64_t computed = 0;
    std::int64_t generated = 0;
    for (const ServedRequest& served : run.requests) {
      RC_ASSERT(served.request.arrival <= served.admitted);
      RC_ASSERT(served.admitted < served.first_token);
      RC_ASSERT(served.first_token <= served.finished);
      RC_ASSERT(served.finished <= run.makespan);
      computed += served.request.prompt + served.request.output - 1;
      generated += served.request.output;
    }
    RC_ASSERT(run.generated == generated);
    RC_ASSERT(run.prefilled + run.decoded == computed + run.repeated);
    RC_ASSERT(run.repeated >= 0);
    RC_ASSERT((run.evictions == 0) == (run.repeated == 0) || run.evictions > 0);
  }));
}

TEST(ServingProperty, TheCacheIsNeverOverfullAndBudgetsHold) {
  EXPECT_TRUE(rc::check([] {
    const Case drawn = tight_case();
    SimTime last;
    const BatchRun run =
        run_batches(drawn.requests, drawn.options, drawn.engine,
                    [&](const Iteration& iteration, SimTime start, SimTime end, std::int64_t held) {
                      RC_ASSERT(held <= drawn.engine.kv_tokens);
                      RC_ASSERT(iteration.tokens() > 0);
                      RC_ASSERT(start < end);
                      RC_ASSERT(start >= last);
                      last = start;
                      RC_ASSERT(iteration.decodes <= drawn.options.max_requests);
                      if (drawn.options.prefill == Prefill::Chunked) {
                        RC_ASSERT(iteration.tokens() <= drawn.options.token_budget);
                      } else {
                        RC_ASSERT(iteration.decodes == 0 || iteration.prompts.empty());
                      }
                    });
    RC_ASSERT(run.kv_peak <= drawn.engine.kv_tokens);
    const double capacity = static_cast<double>(drawn.engine.kv_tokens);
    RC_ASSERT(run.kv_token_seconds <= capacity * to_seconds(run.makespan).value() * (1 + 1e-12));
  }));
}

// A prompt alone is done no later where its chunks overlap, and no sooner than the slowest stage
// has computed them all.
TEST(ServingProperty, OverlappingChunksAreNoLater) {
  EXPECT_TRUE(rc::check([] {
    Case drawn = any_case();
    drawn.requests.resize(1);
    drawn.options.prefill = Prefill::Chunked;
    drawn.options.overlap_chunks = false;
    const BatchRun apart = run_batches(drawn.requests, drawn.options, drawn.engine);
    drawn.options.overlap_chunks = true;
    const BatchRun run = run_batches(drawn.requests, drawn.options, drawn.engine);
    RC_ASSERT(run.iterations == apart.iterations);
    RC_ASSERT(run.busy == apart.busy);
    RC_ASSERT(run.makespan <= apart.makespan);
    RC_ASSERT(run.makespan - drawn.requests.front().arrival >= run.busy.back());
    RC_ASSERT(drawn.engine.stages > 1 || run.makespan == apart.makespan);
  }));
}

TEST(ServingProperty, FirstComeFirstServed) {
  EXPECT_TRUE(rc::check([] {
    const Case drawn = any_case();
    const BatchRun run = run_batches(drawn.requests, drawn.options, drawn.engine);
    for (std::size_t index = 1; index < run.requests.size(); ++index) {
      RC_ASSERT(run.requests[index - 1].admitted <= run.requests[index].admitted);
    }
  }));
}

// Requests handed in one by one while the engine runs, the others not known yet, come to the same
// as all of them at once; and requests routed in turn as those of every replica alone.
TEST(ServingProperty, RoutedInTurnIsDealtInTurn) {
  EXPECT_TRUE(rc::check([] {
    const Case drawn = any_case();
    const auto replicas = *rc::gen::inRange<std::size_t>(1, 4);
    const std::vector<BatchRun> routed =
        run_routed(drawn.requests, drawn.options, drawn.engine, static_cast<int>(replicas));
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      std::vector<Request> own;
      ServingEngine engine(drawn.options, drawn.engine);
      for (std::size_t index = 0; index < drawn.requests.size(); ++index) {
        engine.run_until(drawn.requests[index].arrival);
        if (index % replicas == replica) {
          own.push_back(drawn.requests[index]);
          engine.submit(0, own.back());
        }
      }
      engine.run();
      const BatchRun stepped = engine.take_run(0);
      const BatchRun alone = run_batches(own, drawn.options, drawn.engine);
      for (const BatchRun* run : {&stepped, &routed[replica]}) {
        RC_ASSERT(run->requests.size() == own.size());
        RC_ASSERT(run->makespan == alone.makespan);
        RC_ASSERT(run->iterations == alone.iterations);
        RC_ASSERT(run->prefilled == alone.prefilled);
        for (std::size_t index = 0; index < own.size(); ++index) {
          RC_ASSERT(run->requests[index].first_token == alone.requests[index].first_token);
          RC_ASSERT(run->requests[index].finished == alone.requests[index].finished);
        }
      }
    }
  }));
}

// However they are routed and however many compute in step, every request is served once.
TEST(ServingProperty, RoutedRequestsFinishOnce) {
  EXPECT_TRUE(rc::check([] {
    Case drawn = any_case();
    drawn.options.routing =
        *rc::gen::element(Routing::InTurn, Routing::LeastLoaded, Routing::Prefix);
    for (Request& request : drawn.requests) {
      request.prefix = request.prompt < 20 ? -1 : *rc::gen::inRange<std::int64_t>(-1, 3);
      request.shared = request.prefix < 0 ? 0 : 20;
    }
    drawn.engine.replicas = *rc::gen::inRange(1, 4);
    drawn.engine.time_in_step = [&](int stage, std::span<const Iteration> iterations) {
      SimTime longest;
      std::int64_t tokens = 0;
      for (const Iteration& iteration : iterations) {
        longest = std::max(longest, drawn.engine.time(stage, iteration));
        tokens += iteration.tokens();
      }
      RC_ASSERT(tokens > 0);
      return longest;
    };
    const int replicas = drawn.engine.replicas * *rc::gen::inRange(1, 3);
    std::int64_t outputs = 0;
    std::int64_t generated = 0;
    std::size_t served = 0;
    for (const BatchRun& run : run_routed(drawn.requests, drawn.options, drawn.engine, replicas)) {
      generated += run.generated;
      served += run.requests.size();
      RC_ASSERT(run.kv_peak <= drawn.engine.kv_tokens);
      for (const ServedRequest& request : run.requests) {
        RC_ASSERT(request.finished >= request.first_token);
        RC_ASSERT(request.first_token > request.request.arrival);
        outputs += request.request.output;
      }
    }
    RC_ASSERT(served == drawn.requests.size());
    RC_ASSERT(generated == outputs);
  }));
}

// With one stage the engine computes whenever something has arrived and is not done.
TEST(ServingProperty, OneStageIsNeverIdleWithWork) {
  EXPECT_TRUE(rc::check([] {
    Case drawn = any_case();
    drawn.engine.stages = 1;
    drawn.engine.time = [](int, const Iteration& iteration) {
      return SimTime{100 + iteration.tokens()};
    };
    SimTime end;
    std::vector<std::pair<SimTime, SimTime>> gaps;
    const BatchRun run =
        run_batches(drawn.requests, drawn.options, drawn.engine,
                    [&](const Iteration&, SimTime start, SimTime until, std::int64_t) {
                      if (start > end) {
                        gaps.emplace_back(end, start);
                      }
                      end = until;
                    });
    for (const auto& [from, until] : gaps) {
      for (const ServedRequest& served : run.requests) {
        RC_ASSERT(served.finished <= from || served.request.arrival >= until);
      }
    }
  }));
}

// Steady iterations are counted together: every decode still reads all that its request holds, at
// most a window of it, and whole pages are given back in the end.
TEST(ServingProperty, EveryDecodeReadsWhatItsRequestHolds) {
  EXPECT_TRUE(rc::check([] {
    Case drawn = any_case();
    drawn.options.cache_block = *rc::gen::element<std::int64_t>(1, 1, 3, 16, 64);
    drawn.options.late_stop = false;  // whose last decode is nobody's
    drawn.engine.kv_tokens *= 60;     // nobody is evicted
    std::int64_t keys = 0;
    std::int64_t windowed = 0;
    std::int64_t sampled = 0;
    std::int64_t most = 0;
    const auto observe = [&](const Iteration& iteration, SimTime, SimTime, std::int64_t held) {
      keys += iteration.keys;
      windowed += iteration.windowed_keys;
      sampled += iteration.sampled;
      most = std::max(most, held);
    };
    ServingEngine engine(drawn.options, drawn.engine, observe);
    for (const Request& request : drawn.requests) {
      engine.submit(0, request);
    }
    engine.run();
    const std::int64_t left = engine.replica(0).held();
    const BatchRun run = engine.take_run(0);
    RC_ASSERT(run.evictions == 0);
    std::int64_t all = 0;
    const std::int64_t window = drawn.engine.sliding.window;
    std::int64_t in_window = 0;
    std::int64_t generated = 0;
    for (const Request& request : drawn.requests) {
      generated += request.output;
      for (std::int64_t token = 1; token < request.output; ++token) {
        all += request.prompt + token;
        in_window += window > 0 ? std::min(window, request.prompt + token) : request.prompt + token;
      }
    }
    RC_ASSERT(keys == all);
    RC_ASSERT(windowed == in_window);
    RC_ASSERT(sampled == generated);
    RC_ASSERT(most == run.kv_peak);
    RC_ASSERT(left == 0);
  }));
}

// A run in which nobody waited for more requests or tokens is that of any larger limits.
TEST(ServingProperty, LimitsThatNobodyMeetsChangeNothing) {
  EXPECT_TRUE(rc::check([] {
    const Case drawn = any_case();
    const BatchRun run = run_batches(drawn.requests, drawn.options, drawn.engine);
    if (run.lacked_requests || run.lacked_cache) {
      return;
    }
    Case other = drawn;
    other.options.max_requests += *rc::gen::inRange<std::int64_t>(1, 40);
    other.engine.kv_tokens = std::max(longest_request(drawn.requests), run.kv_wanted);
    const BatchRun same = run_batches(other.requests, other.options, other.engine);
    RC_ASSERT(same.makespan == run.makespan);
    RC_ASSERT(same.iterations == run.iterations);
    RC_ASSERT(same.kv_token_seconds == run.kv_token_seconds);
    for (std::size_t index = 0; index < run.requests.size(); ++index) {
      RC_ASSERT(same.requests[index].first_token == run.requests[index].first_token);
      RC_ASSERT(same.requests[index].finished == run.requests[index].finished);
    }
  }));
}

// It gives up where a request ends later than asked, and only there.
TEST(ServingProperty, RunsThatTakeTooLongAreGivenUp) {
  EXPECT_TRUE(rc::check([] {
    Case drawn = any_case();
    const BatchRun run = run_batches(drawn.requests, drawn.options, drawn.engine);
    drawn.engine.give_up = run.makespan;
    const BatchRun whole = run_batches(drawn.requests, drawn.options, drawn.engine);
    RC_ASSERT(!whole.gave_up);
    RC_ASSERT(whole.makespan == run.makespan);
    drawn.engine.give_up = SimTime{*rc::gen::inRange<std::int64_t>(0, run.makespan.ps)};
    const BatchRun part = run_batches(drawn.requests, drawn.options, drawn.engine);
    RC_ASSERT(part.gave_up || part.makespan == run.makespan);
    RC_ASSERT(part.iterations <= run.iterations);
  }));
}

// Against stepping through the iterations, with lives that are counted and that are sorted.
TEST(ServingProperty, ThePredictedPeakIsThatOfEveryStep) {
  EXPECT_TRUE(rc::check([] {
    std::vector<RemainingLife> requests;
    std::int64_t last = 0;
    const std::int64_t longest = *rc::gen::element<std::int64_t>(10, 50, 400);
    for (std::size_t count = *rc::gen::inRange<std::size_t>(1, 12); count > 0; --count) {
      requests.push_back(
          {*rc::gen::inRange<std::int64_t>(0, longest), *rc::gen::inRange<std::int64_t>(1, 90)});
      last = std::max(last, requests.back().iterations);
    }
    std::int64_t peak = 0;
    for (std::int64_t step = 0; step <= last; ++step) {
      std::int64_t held = 0;
      for (const RemainingLife& request : requests) {
        held += request.iterations >= step ? request.held + step : 0;
      }
      peak = std::max(peak, held);
    }
    RC_ASSERT(predicted_peak(requests) == peak);
  }));
}

// With layers that free what is behind their window, by whole tokens of every request.
TEST(ServingProperty, ThePredictedPeakKnowsWindows) {
  EXPECT_TRUE(rc::check([] {
    const SlidingLayers sliding{*rc::gen::inRange<std::int64_t>(1, 120),
                                *rc::gen::element(0.25, 0.8, 1.0)};
    const CachePages pages(1, 1'000'000, sliding);
    std::vector<RemainingLife> requests;
    std::int64_t last = 0;
    for (std::size_t count = *rc::gen::inRange<std::size_t>(1, 12); count > 0; --count) {
      requests.push_back(
          {*rc::gen::inRange<std::int64_t>(0, 100), *rc::gen::inRange<std::int64_t>(1, 200)});
      last = std::max(last, requests.back().iterations);
    }
    std::int64_t peak = 0;
    for (std::int64_t step = 0; step <= last; ++step) {
      std::int64_t held = 0;
      for (const RemainingLife& request : requests) {
        held += request.iterations >= step ? pages.rounded(request.held + step) : 0;
      }
      peak = std::max(peak, held);
    }
    const std::int64_t predicted = predicted_peak(requests, sliding);
    RC_ASSERT(peak <= predicted);
    RC_ASSERT(predicted <= peak + std::ssize(requests));
  }));
}

TEST(ServingProperty, IsDeterministic) {
  EXPECT_TRUE(rc::check([] {
    const Case drawn = any_case();
    const BatchRun a = run_batches(drawn.requests, drawn.options, drawn.engine);
    const BatchRun b = run_batches(drawn.requests, drawn.options, drawn.engine);
    RC_ASSERT(a.makespan == b.makespan);
    RC_ASSERT(a.kv_token_seconds == b.kv_token_seconds);
    for (std::size_t index = 0; index < a.requests.size(); ++index) {
      RC_ASSERT(a.requests[index].finished == b.requests[index].finished);
    }
  }));
}

}  // namespace
}  // namespace orrery::plan
