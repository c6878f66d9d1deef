// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "search/mixed/search.hpp"

namespace orrery::search {

std::string verify(const MixedFound& found) {
  const plan::MixedPlan again = plan::read_mixed_plan(plan::to_json(found.plan), "plan");
  const plan::MixedSimulation simulation = plan::MixedSimulator(again).run(again);
  if (simulation.does_not_fit) {
    return *simulation.does_not_fit;
  }
  if (simulation.iteration_time != found.simulation.iteration_time) {
    return fmt::format("simulating the plan gives {} s, the search said {} s",
                       simulation.iteration_time.value(), found.simulation.iteration_time.value());
  }
  return "";
}

}  // namespace orrery::search
