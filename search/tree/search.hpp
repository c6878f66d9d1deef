// SPDX-License-Identifier: Apache-2.0
// Exact best-first branch and bound over a space: every plan has an admissible lower bound on its
// simulated time; plans are simulated in order of their bounds until no unseen bound is below the
// best simulated time. The result is the same at any number of threads, since batches are fixed
// and merged in order; only a time limit or an interruption ends it early, and then the gap says
// how much could be left. Plans that would be the answer, or are listed beside it, also fit when
// their memory is replayed (search/tree/memory_check.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/simulation/simulate.hpp"
#include "search/space/constraints.hpp"
#include "search/tree/state_files.hpp"

namespace orrery::search {

class Ranks;         // search/tree/ranks.hpp
struct BatchRecord;  // search/tree/projection.hpp
class KeptCosts;     // search/tree/kept_costs.hpp

enum class SpaceKind { Homogeneous, PerBlock };

struct Options : StateFiles {
  Constraints constraints;
  // Of search_space(); search() is over the homogeneous one, with which one per block begins.
  SpaceKind space = SpaceKind::Homogeneous;
  int jobs = 0;                               // threads; 0: all cores
  int interval_draws = plan::kIntervalDraws;  // of the plans found
  Seconds time_limit;                         // 0: none
  std::uint64_t most_work = 0;  // ends it like a time limit, but alike everywhere; 0: none
  // Stop when no plan can be faster by more than this; below 0 all plans are simulated that are
  // slower than the best by less than that.
  double gap_fraction = 0;
  int top = 5;                 // alternatives kept beside the best
  int spare = 0;               // more plans that a search per block hands over, of those it met
  bool proves_top = false;     // go on until no other plan is faster than the last alternative
  std::function<bool()> stop;  // ends the search early; asked by all threads
  // What the replay of memory keeps free; nothing: the reserve of the plan.
  std::optional<ByteCount> replay_reserve = {};
  Ranks* ranks = nullptr;                      // other processes that take part; this is rank 0
  std::vector<BatchRecord>* record = nullptr;  // what the batches took
  KeptCosts* kept_costs = nullptr;             // of searches before this one, in the same process
};

struct Found {
  plan::Plan plan;
  plan::Simulation simulation;
};

struct Outcome {
  std::optional<Found> best;        // nothing when no plan of the space fits
  std::vector<Found> alternatives;  // next best plans, ascending
  std::vector<Found> spare;         // behind them, without intervals
  std::int64_t plans = 0;           // in the space
  std::int64_t pruned = 0;          // ruled out without simulation: by bound or for memory
  std::int64_t infeasible = 0;      // part of pruned: found not to fit in memory
  std::int64_t simulated = 0;
  std::int64_t unexplored = 0;  // neither: left over by an early end
  Seconds lower_bound;          // no plan of the space is faster; infinite: none fits
  double gap_fraction = 0;      // 1 - lower bound / best; exactly 0 when closed
  bool top_is_proven = false;   // no other plan is faster than the last alternative
  bool interrupted = false;     // by the user, or `stop`
  bool timed_out = false;
  Seconds search_time;
  std::string closest_overflow;  // when nothing fits: the plan that misses by least
  // That plan, where it is memory that it misses; and whether no plan fits by categories, so that
  // none needs less by them.
  std::optional<plan::Plan> closest;
  bool closest_by_categories = false;
  std::uint64_t work = 0;  // as tree/batch.hpp estimates it
};

struct ProgressReport {
  std::int64_t simulated = 0;
  Seconds best;
  double gap_fraction = 1;
  Seconds bound = Seconds();  // no plan is faster
  int drawn = 0;  // afterwards: draws of the errors of times (plan/simulation/interval.hpp)
  int to_draw = 0;
};

// `base` gives what all plans share. Error when the space is empty (nothing divides).
Outcome search(const plan::Plan& base, const Options& options,
               const std::function<void(const ProgressReport&)>& progress = {});

// The same over the space that the options say (search/per_block/search.hpp).
Outcome search_space(const plan::Plan& base, const Options& options,
                     const std::function<void(const ProgressReport&)>& progress = {});

// Checks a found plan independently of the search: consistent, within memory, and simulating it
// from its own document gives the same time. Returns "" or what is wrong.
std::string verify(const Found& found);
// The same of all plans of an outcome, on `jobs` threads: the first that is wrong, by its rank.
std::string verify(const Outcome& outcome, int jobs);

}  // namespace orrery::search
