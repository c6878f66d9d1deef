// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/shortest_order.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {

void ShortestOrder::offer(PipelineOrder order) {
  const PipelineResult result = evaluate_pipeline(order, stage_costs(order, params_));
  if (largest_peak(order, result) <= cap_ && result.makespan < shortest_) {
    shortest_ = result.makespan;
    best_ = std::move(order);
  }
}

PipelineOrder ShortestOrder::take(std::string_view where) {
  if (!best_) {
    bad_input(
        where,
        fmt::format("no order that it tries keeps within {:g} micro-batches of activations", cap_),
        "raise the cap, or even out the activations of the stages");
  }
  return *std::move(best_);
}

}  // namespace orrery::sim
