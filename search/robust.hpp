// SPDX-License-Identifier: Apache-2.0
// Which plan stays best when the cost model errs: plans near the best are evaluated under the same
// seeded draws of its errors (plan/simulation/interval.hpp), and each draw has a winner.
//
// Considered are the plans of the space whose nominal time is within the reach of the best plan's
// 80 % interval: T <= best x high / low, where high and low bound that interval. A plan beyond
// would have to gain on the best what separates the two ends of an interval, although both meet the
// same draws; that is no proof, so `farthest_winner` says how far from the best nominal time any
// winner lay: far inside the reach, plans beyond it do not matter. At most `most` plans are
// evaluated, those of least nominal time; `complete` says whether these are all within the reach.
// The space per block has too many of them: there the plans that its search met are compared.
// Deterministic at any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "search/tree/search.hpp"

namespace orrery::search {

struct RobustOptions {
  int draws = 128;  // even
  std::uint64_t seed = 1;
  int most = 64;  // plans
};

struct RobustPlan {
  Found found;
  double probability_best = 0;  // share of draws; a tie is shared
  double mean_loss = 0;         // mean over draws of time / least time of the draw - 1
  double worst_loss = 0;
};

struct Robust {
  std::vector<RobustPlan> plans;  // most probable first; empty where it ended before any draw
  double reach = 1;               // times the best nominal time
  bool complete = false;          // every plan within the reach was evaluated
  bool ended_early = false;       // the search for others was cut short: faster ones may be missing
  bool met_alone = false;         // only plans that the search met: others were not looked for
  double farthest_winner = 0;     // largest nominal time of a winner over the best nominal time - 1
  double farthest_considered = 0;
  RobustOptions options;
  int draws = 0;  // fewer than asked for where they were ended
};

// `nominal` is the outcome of search_space() of the same base and options that found a plan; per
// block with as many to spare as are compared.
// The time limit is that of both searches together, but for a second; what an early end left of the
// second one is made up for by what the first one found. Draws end early at Ctrl-C and at the time
// limit; those that all plans have met are judged.
Robust find_robust(const plan::Plan& base, const Options& options, const Outcome& nominal,
                   const RobustOptions& robust,
                   const std::function<void(const ProgressReport&)>& progress = {});

}  // namespace orrery::search
