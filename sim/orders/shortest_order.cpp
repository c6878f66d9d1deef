// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/shortest_order.hpp"

#include "sim/share_costs.hpp"

namespace orrery::sim {

void ShortestOrder::offer(PipelineOrder order) {
  const PipelineResult result = evaluate_pipeline(order, stage_costs(order, params_));
  if (largest_peak(order, result) <= cap_ && result.makespan < shortest_) {
    shortest_ = result.makespan;
    best_ = std::move(order);
  }
}

}  // namespace orrery::sim
