// SPDX-License-Identifier: Apache-2.0
// Searches the serving plan with the highest throughput: tensor- and pipeline-parallel degrees with
// replicas on the rest of the cluster, experts in one replica or over several, routing, tokens and
// requests of an iteration, chunked or separate prefill, nano-batches. Every plan of the space is
// either simulated or left out for a stated reason: it does not fit, or a lower bound on its time
// (peak rates, serving_bound()) is no better than the best plan so far. Plans that break a latency
// limit are simulated and set aside. Plans are tried in order of their bound; deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/serving/simulate.hpp"
#include "search/constraints.hpp"
#include "search/serving_space.hpp"

namespace orrery::search {

struct ServingLimits {
  std::optional<Seconds> first_token_p99;
  std::optional<Seconds> per_output_token_p99;
};

struct ServingSearch {
  ServingLimits limits;
  ServingFixes fixed;
  std::size_t top = 5;
};

struct ServingFound {
  plan::Plan plan;
  plan::ServingSimulation simulation;
};

struct ServingOutcome {
  std::vector<ServingFound> found;  // best first, at most `top`
  std::int64_t plans = 0;
  std::int64_t infeasible = 0;  // do not fit
  std::int64_t pruned = 0;      // by the bound
  std::int64_t late = 0;        // break a latency limit
  std::int64_t simulated = 0;
  std::string closest;  // nothing fits: why the plan that comes closest does not
  std::string nearest;  // and what would help
};

// `base` has network, cluster, profile, precision and serving requests.
ServingOutcome search_serving(const plan::Plan& base, const ServingSearch& search,
                              const std::function<void(const std::string&)>& progress = {});

}  // namespace orrery::search
