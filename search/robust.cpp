// SPDX-License-Identifier: Apache-2.0
#include "search/robust.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "base/parallel.hpp"
#include "plan/simulation/sample_times.hpp"
#include "search/nearest_parts.hpp"
#include "search/tree/drawing.hpp"

namespace orrery::search {
namespace {

// All plans whose bound is within the reach are simulated: a gap below 0 lets the search go on past
// the best plan.
Outcome search_within(const plan::Plan& base, Options options, double reach, int most,
                      const std::function<void(const ProgressReport&)>& progress) {
  options.gap_fraction = 1 - reach;
  options.top = most - 1;
  options.proves_top = false;
  options.interval_draws = 0;
  return search(base, options, progress);
}

// What both searches found, the fastest first. One that ended early may lack plans of the other.
std::vector<Found> candidates(const std::vector<const Outcome*>& outcomes, double reach, int most) {
  std::vector<Found> all;
  std::set<std::string> known;
  for (const Outcome* outcome : outcomes) {
    const auto add = [&](const Found& found) {
      if (known.insert(plan::to_json(found.plan).dump(-1)).second) {
        all.push_back(found);
      }
    };
    if (outcome->best) {
      add(*outcome->best);
    }
    std::for_each(outcome->alternatives.begin(), outcome->alternatives.end(), add);
    std::for_each(outcome->spare.begin(), outcome->spare.end(), add);
  }
  std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return a.simulation.iteration_time < b.simulation.iteration_time;
  });
  const Seconds limit = all.front().simulation.iteration_time * reach;
  std::erase_if(all, [&](const Found& one) { return one.simulation.iteration_time > limit; });
  if (std::ssize(all) > most) {
    all.resize(static_cast<std::size_t>(most));
  }
  return all;
}

// Between them no plan is ahead of the others; each is made of pairs of opposite errors.
constexpr std::size_t kDrawsOfARound = 128;

// The draws of a round: each of the first half of all has its opposite in the second.
std::vector<plan::Draw> round_of(const std::vector<plan::Draw>& all, std::size_t done) {
  const std::size_t pairs = std::min(kDrawsOfARound, all.size() - done) / 2;
  std::vector<plan::Draw> draws;
  for (const std::size_t first : {done / 2, all.size() / 2 + done / 2}) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    draws.insert(draws.end(), begin, begin + static_cast<std::ptrdiff_t>(pairs));
  }
  return draws;
}

// Adds winners and losses, draw by draw.
void judge(const std::vector<std::vector<Seconds>>& times, std::vector<RobustPlan>& plans) {
  for (std::size_t draw = 0; draw < times.front().size(); ++draw) {
    Seconds least = times.front()[draw];
    for (const std::vector<Seconds>& plan : times) {
      least = std::min(least, plan[draw]);
    }
    const auto winners = std::count_if(times.begin(), times.end(),
                                       [&](const auto& plan) { return plan[draw] == least; });
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const double loss = times[i][draw] / least - 1;
      plans[i].mean_loss += loss;
      plans[i].worst_loss = std::max(plans[i].worst_loss, loss);
      if (loss == 0) {
        plans[i].probability_best += 1.0 / static_cast<double>(winners);
      }
    }
  }
}

// Of all draws, round by round until `drawing` is over; how many were judged.
int judge_all(const std::vector<plan::Draw>& draws, int jobs, Drawing& drawing,
              std::vector<RobustPlan>& plans) {
  std::size_t done = 0;
  while (done < draws.size()) {
    const std::vector<plan::Draw> round = round_of(draws, done);
    std::vector<std::vector<Seconds>> times(plans.size());
    parallel_for(plans.size(), jobs, [&](std::size_t i) {
      times[i] = plan::sample_times(plans[i].found.plan, round, [&] { return drawing.is_over(); });
    });
    const bool whole = std::all_of(times.begin(), times.end(), [&](const auto& of_plan) {
      return of_plan.size() == round.size();
    });
    if (!whole) {
      break;
    }
    judge(times, plans);
    done += round.size();
  }
  for (RobustPlan& plan : plans) {
    plan.mean_loss /= static_cast<double>(done);
    plan.probability_best /= static_cast<double>(done);
  }
  return static_cast<int>(done);
}

}  // namespace

Robust find_robust(const plan::Plan& base, const Options& options, const Outcome& nominal,
                   const RobustOptions& how,
                   const std::function<void(const ProgressReport&)>& progress) {
  const plan::Simulation& best = nominal.best->simulation;
  Robust robust;
  robust.options = how;
  robust.reach = best.interval_high / best.interval_low;
  robust.met_alone = options.space == SpaceKind::PerBlock;
  Outcome again;
  if (!robust.met_alone) {
    Options left = options;
    if (options.time_limit.value() > 0) {
      left.time_limit = Deadline(options, nominal.search_time).left();
    }
    again = search_within(base, left, robust.reach, how.most, progress);
  }
  const bool is_whole = again.best && again.unexplored == 0;
  std::vector<Found> found = candidates(is_whole ? std::vector<const Outcome*>{&again}
                                                 : std::vector<const Outcome*>{&again, &nominal},
                                        robust.reach, how.most);
  robust.complete = is_whole && std::ssize(found) < how.most;
  robust.ended_early = !robust.met_alone && !is_whole;
  const Seconds fastest = found.front().simulation.iteration_time;
  for (Found& plan : found) {
    robust.plans.push_back({std::move(plan), 0, 0, 0});
  }
  const std::vector<plan::Draw> draws =
      plan::draw_errors(plan::spreads_of(base), how.draws, how.seed);
  Drawing drawing(options, nominal.search_time + again.search_time,
                  draws.size() * robust.plans.size(), {}, progress);
  robust.draws = judge_all(draws, options.jobs, drawing, robust.plans);
  if (robust.draws == 0) {
    robust.plans.clear();
    return robust;
  }
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
