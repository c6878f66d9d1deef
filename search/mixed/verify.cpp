// SPDX-License-Identifier: Apache-2.0
#include "search/verify.hpp"

#include "search/mixed/search.hpp"

namespace orrery::search {

std::string verify(const MixedFound& found) {
  const plan::MixedPlan again = plan::read_mixed_plan(plan::to_json(found.plan), "plan");
  const plan::MixedSimulation simulation = plan::MixedSimulator(again).run(again);
  return difference(simulation.does_not_fit, simulation.iteration_time,
                    found.simulation.iteration_time);
}

}  // namespace orrery::search
