// SPDX-License-Identifier: Apache-2.0
#include "search/verify.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/parallel.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

std::string difference(const std::optional<std::string>& does_not_fit, Seconds again,
                       Seconds said) {
  if (does_not_fit) {
    return *does_not_fit;
  }
  return again == said ? std::string()
                       : fmt::format("simulating the plan gives {} s, the search said {} s",
                                     again.value(), said.value());
}

std::string verify(const Found& found) {
  const plan::Plan again = plan::read_plan(plan::to_json(found.plan), "plan");
  plan::check_plan(again, "plan");
  const plan::Simulation simulation = plan::simulate(again);
  return difference(simulation.does_not_fit, simulation.iteration_time,
                    found.simulation.iteration_time);
}

std::string verify(const Outcome& outcome, int jobs) {
  std::vector<const Found*> plans;
  if (outcome.best) {
    plans.push_back(&*outcome.best);
  }
  for (const Found& found : outcome.alternatives) {
    plans.push_back(&found);
  }
  std::vector<std::string> wrong(plans.size());
  parallel_for(plans.size(), jobs,
               [&](std::size_t index) { wrong[index] = verify(*plans[index]); });
  for (std::size_t index = 0; index < plans.size(); ++index) {
    if (!wrong[index].empty()) {
      return fmt::format("plan {}: {}", index + 1, wrong[index]);
    }
  }
  return "";
}

}  // namespace orrery::search
