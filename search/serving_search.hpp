// SPDX-License-Identifier: Apache-2.0
// Searches the serving plan that comes first (search/serving_rank.hpp): tensor- and
// pipeline-parallel degrees with replicas on the rest of the cluster, experts in one replica or
// over several, routing, tokens and requests of an iteration, chunked or separate prefill,
// nano-batches. Where no plan fits, and the cluster has a host or disk, parameters of layers live
// there. Every plan of the space is either simulated or left out for a stated reason: it
// does not fit, or a lower bound on its time (peak rates, serving_bound(), or the clock of its
// unfinished run) is worse than what the listed plans take. Plans that break a latency limit are
// simulated and set aside. Plans are tried in order of their bound; deterministic, but for an early
// end (time limit, Ctrl-C), which states the gap. A checkpoint holds what became of the first of
// them, as many as were judged.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/serving/simulate.hpp"
#include "search/serving_space.hpp"
#include "search/tree/state_files.hpp"

namespace orrery::search {

struct ServingLimits {
  std::optional<Seconds> first_token_p99;
  std::optional<Seconds> per_output_token_p99;
};

struct ServingSearch : StateFiles {
  ServingLimits limits;
  ServingFixes fixed;
  std::size_t top = 5;
  Seconds time_limit;          // 0: none; a first plan is waited for
  int jobs = 0;                // threads; 0: all cores. They change nothing but the time
  std::function<bool()> stop;  // ends the search early; asked before each plan is taken
};

struct ServingFound {
  plan::Plan plan;
  plan::ServingSimulation simulation;
};

struct ServingOutcome {
  std::vector<ServingFound> found;  // best first, at most `top`
  std::int64_t plans = 0;
  std::int64_t infeasible = 0;  // do not fit
  std::int64_t pruned = 0;      // by a bound
  std::int64_t late = 0;        // break a latency limit
  std::int64_t simulated = 0;
  std::int64_t unexplored = 0;  // left over by an early end
  std::int64_t as_fast = 0;     // within limits, and with the throughput of the first
  bool over_time = false;       // the requests do not arrive all at once
  bool streams = false;         // no plan fits whose parameters all stay on the devices
  Seconds lower_bound;          // no plan of the space takes less to serve all requests
  double gap_fraction = 0;      // 1 - lower bound / fastest; exactly 0 when closed
  bool interrupted = false;
  bool timed_out = false;
  Seconds search_time;
  std::string closest;  // nothing fits: why the plan that comes closest does not
  std::string nearest;  // and what would help
};

// `base` has network, cluster, profile, precision and serving requests.
ServingOutcome search_serving(const plan::Plan& base, const ServingSearch& search,
                              const std::function<void(const std::string&)>& progress = {});

}  // namespace orrery::search
