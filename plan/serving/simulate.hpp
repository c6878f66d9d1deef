// SPDX-License-Identifier: Apache-2.0
// Simulates a serving plan: requests are routed (serving/routing.hpp) to dp replicas with
// continuous batching (serving/batching.hpp) over pp stages (serving/cost.hpp), those that share
// experts in step. Percentiles are nearest-rank over all requests. Throughput counts each prompt
// and output token once, over the time until the last request is done.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/serving/cost.hpp"

namespace orrery::plan {

struct Percentiles {
  Seconds mean;
  Seconds p50;
  Seconds p90;
  Seconds p99;
  std::int64_t count = 0;  // of the values; 0: there is nothing to tell
};

struct ServingSimulation {
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  Seconds makespan;
  double requests_per_second = 0;
  double tokens_per_second = 0;  // prompt and output
  double output_tokens_per_second = 0;
  double tokens_per_second_per_gpu = 0;
  double optimal_tokens_per_second_per_gpu = 0;  // peak / (2 active parameters)
  Percentiles first_token;                       // from arrival
  Percentiles per_output_token;                  // behind the first, of requests with several
  Percentiles latency;                           // from arrival to the last token
  double kv_token_seconds = 0;                   // integral of the tokens held, of all replicas
  std::int64_t kv_peak = 0;                      // tokens, of one replica
  double kv_mean_fraction = 0;                   // of the cache's capacity, over time
  double kv_peak_fraction = 0;
  double kv_waste_fraction = 0;  // of what is held: rest of last pages
  std::int64_t iterations = 0;   // of all replicas
  double tokens_per_iteration = 0;
  std::int64_t evictions = 0;
  std::int64_t repeated_tokens = 0;
  std::int64_t found_tokens = 0;  // of prompts, in the cache already
  // Mean over replicas and stages, as if the parts of an iteration ran one after the other.
  std::array<Seconds, kNumServingParts> parts{};
  Seconds busy;
  std::vector<ServingMemory> memory;  // per stage
  // Why it cannot run, and the nearest change that would let it; then nothing else is filled in but
  // the memory.
  std::optional<std::string> does_not_fit;
  std::string nearest;
};

// Sees every request when it has been served, and the replica that did.
using ServedObserver = std::function<void(int replica, const ServedRequest&)>;

ServingSimulation simulate_serving(const Plan& plan, const ServedObserver& observe = {});
// With a model made for this plan, and the requests that its workload makes.
ServingSimulation simulate_serving(const Plan& plan, ServingModel& model,
                                   const std::vector<Request>& requests);
// Without the simulation where serving them takes longer than `limit` and the run noticed that
// before its end; then the rest, which is of whole runs, says nothing.
struct ServingRun {
  std::optional<ServingSimulation> simulation;
  bool lacked_requests = false;  // BatchRun, of any replica
  bool lacked_cache = false;
  std::int64_t kv_wanted = 0;
};
// The same where `stop`, which is asked now and then, says so.
ServingRun simulate_serving_within(Seconds limit, const Plan& plan, ServingModel& model,
                                   const std::vector<Request>& requests,
                                   const std::function<bool()>& stop = {});
// The run of a plan that differs in a larger `max_requests` alone, where that is known to be the
// same: it came to its end, and no request waited for max_requests or the cache, nor would for the
// cache that is left.
std::optional<ServingRun> serving_run_like(const ServingRun& run, const Plan& plan,
                                           ServingModel& model);

// Members of docs/serving.md.
Json to_json(const ServingSimulation& simulation);

struct ServingVerdict {
  bool fits = true;
  std::string text;
};
ServingVerdict serving_fits(const std::vector<ServingMemory>& memory, std::int64_t longest,
                            const Plan& plan);
// Least makespan whatever the batching does: busy_bound() of the fullest replica, or of the mean.
Seconds serving_bound(const Plan& plan, ServingModel& model, const std::vector<Request>& requests);

}  // namespace orrery::plan
