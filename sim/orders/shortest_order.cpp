// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/shortest_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "sim/orders/order_bound.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

// Activations that a device holds at most: until the weight gradient, where that is cut.
std::int64_t peak_of(const std::vector<Pass>& list) {
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (const Pass& pass : list) {
    live += pass.kind == PassKind::Forward ? 1 : pass.kind == PassKind::InputGrad ? 0 : -1;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace

void ShortestOrder::offer(PipelineOrder order) {
  ORRERY_CHECK(order.is_plain(), "orders of one chain are compared");
  if (!params_.timed_on.empty() && order.device_of != params_.timed_on) {
    return;  // there its passes take other times
  }
  const double pieces = order.num_virtual_stages / static_cast<double>(order.passes.size());
  for (const std::vector<Pass>& list : order.passes) {
    if (static_cast<double>(peak_of(list)) / pieces > cap_) {
      return;
    }
  }
  const SimTime limit = params_.decides_all ? SimTime::max() : shortest_;
  const bool cuts = std::any_of(order.passes.front().begin(), order.passes.front().end(),
                                [](const Pass& pass) { return pass.kind == PassKind::WeightGrad; });
  const OrderBound bound(order.device_of, params_, cuts);
  const std::optional<SimTime> makespan =
      makespan_within(order, stage_costs(order, params_), bound.idle_within(limit));
  if (makespan && *makespan < shortest_) {
    shortest_ = *makespan;
    best_ = std::move(order);
  }
}

PipelineOrder ShortestOrder::take(std::string_view where) {
  if (!best_) {
    bad_input(
        where,
        fmt::format("no order that it tries keeps within {:g} micro-batches of activations", cap_),
        fmt::format("raise {}, or even out the activations of the stages", params_.cap_name));
  }
  return *std::move(best_);
}

}  // namespace orrery::sim
