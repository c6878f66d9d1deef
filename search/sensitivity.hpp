// SPDX-License-Identifier: Apache-2.0
// What hardware that is better by a share in one parameter would buy: for the best plan as it is,
// and for the best plan of that hardware, searched again. Latencies and the time of the host are
// divided by 1 + share, rates and memory multiplied.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "search/problem.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

struct Sensitivity {
  std::string parameter;
  std::string path;         // of --set; empty: of the profile
  Seconds same_plan;        // iteration time of the best plan on that hardware
  bool searched = false;    // again; else the time was up, and the following is not known
  Seconds replanned;        // of the best plan for that hardware
  plan::Plan plan;          // that plan
  double gap_fraction = 0;  // no plan is faster than `replanned` by more
};

// `best` is the best plan of `base`. Parameters that the cluster does not have are left out. `done`
// hears of every parameter. The time limit of `options` is that of all searches together: each gets
// an equal part of what is left, none where nothing is.
std::vector<Sensitivity> find_sensitivity(const Problem& problem, const plan::Plan& base,
                                          const Options& options, const Found& best, double share,
                                          const std::function<void(std::size_t)>& done = {});

}  // namespace orrery::search
