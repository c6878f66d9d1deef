// SPDX-License-Identifier: Apache-2.0
// The search on clusters of several kinds of nodes: exact best-first branch and bound over
// search/mixed/space.hpp with the same certificate as search.hpp. Every node of the tree has an
// admissible bound: an arrangement by linear programming duality, a cut by its busiest device with
// the way to it, a schedule by its placement, a plan by its lists; plans are simulated in the order
// of their bounds until none is below the best. Nodes are evaluated side by side in batches that do
// not depend on who does it, so the outcome is the same at any number of threads. Plans of the
// answer also fit when their memory is replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/mixed/simulate.hpp"
#include "search/problem.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

struct MixedFound {
  plan::MixedPlan plan;
  plan::MixedSimulation simulation;
};

struct MixedOutcome {
  std::optional<MixedFound> best;
  std::vector<MixedFound> alternatives;
  std::int64_t plans = 0;
  std::int64_t pruned = 0;
  std::int64_t infeasible = 0;  // part of pruned
  std::int64_t simulated = 0;
  std::int64_t unexplored = 0;
  // Whether all plans of the space are counted: an early end may come while they are listed.
  bool whole_space = true;
  // No plan with divided replicas beside whole ones is faster, where these are too many to be
  // listed: they are not among `plans`, but the lower bound holds for them.
  std::optional<Seconds> bound_left_out;
  Seconds lower_bound;
  double gap_fraction = 0;
  bool interrupted = false;
  bool timed_out = false;
  Seconds search_time;
  std::string closest_overflow;
  std::uint64_t work = 0;  // as mixed/worker.hpp estimates it
};

// What all plans share, from a mixed cluster by name or file; `--set POOL.path=value` reaches a
// pool, other paths the network.
plan::MixedPlan mixed_base_plan(const Problem& problem);

// Error when the space is empty or the options ask for what mixed clusters do not have. Of
// `most_work` a half goes to the search proper, what is left of it to looking for any plan below
// arrangements spread over all. With it and a gap of 1 nothing is told of plans that miss.
MixedOutcome search_mixed(const plan::MixedPlan& base, const Options& options,
                          const std::function<void(const ProgressReport&)>& progress = {});

// "" or what is wrong with a plan found: as search::verify.
std::string verify(const MixedFound& found);

}  // namespace orrery::search
