// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/answer.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <utility>

#include "search/tree/drawing.hpp"

namespace orrery::search {

PerBlockOutcome per_block_answer(PerBlockState state, const PerBlockSpace& space,
                                 const Options& options, double until,
                                 const std::function<void(const ProgressReport&)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  PerBlockOutcome result = std::move(state.result);
  Outcome& outcome = result.outcome;
  const std::size_t listed =
      std::min(state.found.plans().size(), static_cast<std::size_t>(options.top) + 1);
  const auto draws = static_cast<std::size_t>(options.interval_draws);
  Drawing drawing(options, outcome.search_time, listed * draws, state.report(), progress);
  std::vector<Found> plans =
      state.found.simulated(listed, options.interval_draws, [&] { return drawing.is_over(); });
  if (!plans.empty()) {
    result.best_gains_by_name = space.gains_by_name(plans.front().plan);
    const auto behind = plans.begin() + static_cast<std::ptrdiff_t>(listed);
    outcome.spare.assign(std::make_move_iterator(behind), std::make_move_iterator(plans.end()));
    outcome.alternatives.assign(std::make_move_iterator(plans.begin() + 1),
                                std::make_move_iterator(behind));
    outcome.best = std::move(plans.front());
  }
  result.size = space.size();
  result.unproven = space.unproven_schedules();
  outcome.plans = result.size.exact;
  outcome.lower_bound = Seconds(state.lower_bound());
  if (state.found.empty() && state.lower_bound() >= until) {
    outcome.lower_bound = Seconds(std::numeric_limits<double>::infinity());  // no plan fits
  }
  if (!state.found.empty()) {
    outcome.gap_fraction = std::max(0.0, 1.0 - state.lower_bound() / state.best());
  }
  outcome.search_time +=
      Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return result;
}

}  // namespace orrery::search
