// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/unit_times.hpp"

namespace orrery::sim {
namespace {

void spread(const std::vector<SimTime>& of_stages, int units, std::vector<SimTime>& of_units) {
  if (!of_units.empty()) {
    return;
  }
  for (const SimTime time : of_stages) {
    of_units.insert(of_units.end(), static_cast<std::size_t>(units), time);
  }
}

}  // namespace

void give_units_times(int units, PipelineCosts& costs) {
  spread(costs.forward, units, costs.unit_forward);
  spread(costs.input_grad, units, costs.unit_input_grad);
  spread(costs.weight_grad, units, costs.unit_weight_grad);
  spread(costs.backward, units, costs.unit_backward);
}

}  // namespace orrery::sim
