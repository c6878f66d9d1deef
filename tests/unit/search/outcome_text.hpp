// SPDX-License-Identifier: Apache-2.0
// All that a search answers, but for the time it took, as text: equal texts are equal answers.
#pragma once

#include <string>

#include "search/per_block/search.hpp"

namespace orrery::search {

inline std::string text_of(const Outcome& outcome) {
  std::string text = std::to_string(outcome.plans) + " " + std::to_string(outcome.pruned) + " " +
                     std::to_string(outcome.infeasible) + " " + std::to_string(outcome.simulated) +
                     " " + std::to_string(outcome.lower_bound.value()) + " " +
                     std::to_string(outcome.gap_fraction) + outcome.closest_overflow;
  const auto add = [&](const Found& found) {
    text += "\n" + plan::to_json(found.plan).dump() +
            std::to_string(to_sim_time(found.simulation.iteration_time).ps);
  };
  if (outcome.best) {
    add(*outcome.best);
  }
  for (const Found& found : outcome.alternatives) {
    add(found);
  }
  return text;
}

inline std::string text_of(const PerBlockOutcome& outcome) {
  std::string text = text_of(outcome.outcome) + outcome.size.text();
  for (const std::int64_t count : {to_sim_time(outcome.homogeneous).ps, outcome.meshes,
                                   outcome.pipelines, outcome.drafted, outcome.parts}) {
    text += " " + std::to_string(count);
  }
  return text;
}

}  // namespace orrery::search
