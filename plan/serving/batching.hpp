// SPDX-License-Identifier: Apache-2.0
// Continuous batching: which tokens run in which iteration of an engine with a KV cache. Knows
// nothing of networks: the time of an iteration on a stage is a function that the caller gives.
//
// First come, first served. An iteration decodes one token of every running request and fills the
// rest of its token budget with prompts, in chunks (Sarathi-Serve, arXiv 2403.02310; NanoFlow,
// arXiv 2408.12757), or computes whole prompts alone. A request is admitted when the predicted peak
// of KV tokens, over the remaining life of all running ones, fits the cache. KV tokens are reserved
// when the iteration that writes them is formed, so the cache never holds more than its capacity;
// where the prediction was wrong the youngest request is evicted and later computed again from its
// first token (vLLM, arXiv 2309.06180, section 4.5).
//
// With p stages there are p groups of requests, whose iterations follow each other through the
// pipeline. O(running requests) for an iteration; an admission sorts them. Deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/sim_time.hpp"
#include "plan/serving/pages.hpp"
#include "plan/serving/serving.hpp"

namespace orrery::plan {

struct PromptPart {
  std::int64_t done = 0;    // tokens of the request in the cache before
  std::int64_t tokens = 0;  // computed in this iteration
};

struct Iteration {
  std::int64_t decodes = 0;
  std::int64_t keys = 0;           // cached tokens that the decodes read, summed
  std::int64_t windowed_keys = 0;  // the same, at most a window for each
  std::vector<PromptPart> prompts;
  std::int64_t sampled = 0;  // requests that get a token: decodes and prompts that end
  std::int64_t tokens() const {
    std::int64_t tokens = decodes;
    for (const PromptPart& part : prompts) {
      tokens += part.tokens;
    }
    return tokens;
  }
};

struct BatchEngine {
  int stages = 1;
  int replicas = 1;            // that compute in step, each with its own requests and cache
  std::int64_t kv_tokens = 0;  // capacity of the cache, of each replica
  SlidingLayers sliding{};     // where there are any, which read no more than their window
  std::function<SimTime(int stage, const Iteration&)> time;
  // Of several replicas in step, one iteration of each; some may be empty, not all.
  std::function<SimTime(int stage, std::span<const Iteration>)> time_in_step;
  // From stage to stage + 1 and, behind the last one, sampled tokens back to the first.
  std::function<SimTime(int stage, const Iteration&)> transfer;
  SimTime give_up = SimTime::max();  // nobody asks for runs in which a request ends later
  std::function<bool()> stop;        // asked now and then: nor for this one
};

struct ServedRequest {
  Request request;
  SimTime admitted;  // first
  SimTime first_token;
  SimTime finished;
  int evictions = 0;
};

struct BatchRun {
  std::vector<ServedRequest> requests;  // in order of arrival
  SimTime makespan;                     // the last request is done
  std::int64_t iterations = 0;
  std::int64_t generated = 0;  // output tokens
  std::int64_t prefilled = 0;  // prompt tokens computed, repetitions included
  std::int64_t decoded = 0;    // tokens computed by decoding: all but the first of each request
  std::int64_t repeated = 0;   // tokens lost to evictions; prefilled + decoded counts them again
  std::int64_t evictions = 0;
  std::int64_t found = 0;       // prompt tokens whose keys and values were in the cache
  std::int64_t kv_peak = 0;     // tokens
  double kv_token_seconds = 0;  // integral of the tokens held, in whole pages
  double kv_waste_seconds = 0;  // of those in last pages that hold nothing
  std::vector<SimTime> busy;    // per stage
  // With room for more requests, or another cache that holds so many tokens, the run is the same
  // unless a request waited for one of the two.
  bool lacked_requests = false;
  bool lacked_cache = false;
  std::int64_t kv_wanted = 0;
  bool gave_up = false;  // BatchEngine::give_up or its stop came first: the rest is not known
};

// Sees every iteration as it is formed, with the KV tokens then held.
using IterationObserver =
    std::function<void(const Iteration&, SimTime start, SimTime end, std::int64_t held)>;

// Every request must fit the cache alone (longest_request() <= CachePages::longest()).
BatchRun run_batches(std::span<const Request> requests, const ServingOptions& options,
                     const BatchEngine& engine, const IterationObserver& observe = {});

}  // namespace orrery::plan
