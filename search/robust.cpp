// SPDX-License-Identifier: Apache-2.0
#include "search/robust.hpp"

#include <algorithm>

#include "base/parallel.hpp"
#include "plan/simulation/sample_times.hpp"

namespace orrery::search {
namespace {

// All plans whose bound is within the reach are simulated: a gap below 0 lets the search go on past
// the best plan.
Outcome search_within(const plan::Plan& base, Options options, double reach, int most) {
  options.gap_fraction = 1 - reach;
  options.top = most - 1;
  options.proves_top = false;
  options.interval_draws = 0;
  return search(base, options);
}

std::vector<Found> candidates(Outcome& outcome, double reach) {
  std::vector<Found> found;
  const Seconds limit = outcome.best->simulation.iteration_time * reach;
  found.push_back(std::move(*outcome.best));
  for (Found& other : outcome.alternatives) {
    if (other.simulation.iteration_time <= limit) {
      found.push_back(std::move(other));
    }
  }
  return found;
}

// Winners and losses, draw by draw.
void judge(const std::vector<std::vector<Seconds>>& times, std::vector<RobustPlan>& plans) {
  const std::size_t draws = times.front().size();
  for (std::size_t draw = 0; draw < draws; ++draw) {
    Seconds least = times.front()[draw];
    for (const std::vector<Seconds>& plan : times) {
      least = std::min(least, plan[draw]);
    }
    const auto winners = std::count_if(times.begin(), times.end(),
                                       [&](const auto& plan) { return plan[draw] == least; });
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const double loss = times[i][draw] / least - 1;
      plans[i].mean_loss += loss / static_cast<double>(draws);
      plans[i].worst_loss = std::max(plans[i].worst_loss, loss);
      if (loss == 0) {
        plans[i].probability_best +=
            1.0 / static_cast<double>(winners) / static_cast<double>(draws);
      }
    }
  }
}

}  // namespace

Robust find_robust(const plan::Plan& base, const Options& options, const Outcome& nominal,
                   const RobustOptions& how) {
  const plan::Simulation& best = nominal.best->simulation;
  Robust robust;
  robust.options = how;
  robust.reach = best.interval_high / best.interval_low;
  Outcome outcome = search_within(base, options, robust.reach, how.most);
  if (!outcome.best) {  // interrupted
    return robust;
  }
  std::vector<Found> found = candidates(outcome, robust.reach);
  robust.complete = outcome.unexplored == 0 && found.size() < static_cast<std::size_t>(how.most);
  std::vector<std::vector<Seconds>> times(found.size());
  parallel_for(found.size(), options.jobs, [&](std::size_t i) {
    times[i] = plan::sample_times(found[i].plan, how.draws, how.seed);
  });
  const Seconds fastest = found.front().simulation.iteration_time;
  for (Found& plan : found) {
    robust.plans.push_back({std::move(plan), 0, 0, 0});
  }
  judge(times, robust.plans);
  for (const RobustPlan& plan : robust.plans) {
    const double beyond = plan.found.simulation.iteration_time / fastest - 1;
    robust.farthest_considered = std::max(robust.farthest_considered, beyond);
    if (plan.probability_best > 0) {
      robust.farthest_winner = std::max(robust.farthest_winner, beyond);
    }
  }
  std::stable_sort(robust.plans.begin(), robust.plans.end(),
                   [](const RobustPlan& a, const RobustPlan& b) {
                     return a.probability_best > b.probability_best;
                   });
  return robust;
}

}  // namespace orrery::search
