// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/layer_arcs.hpp"

#include <algorithm>
#include <cstddef>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {

namespace {

std::int64_t largest_load(const std::vector<std::int64_t>& loads,
                          const std::vector<std::uint16_t>& device_of, int devices) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(devices), 0);
  for (std::size_t k = 0; k < loads.size(); ++k) {
    sums[device_of[k]] += loads[k];
  }
  return *std::max_element(sums.begin(), sums.end());
}

// A gradient is p - 1 - i devices down and as many back up away from its forward on device i.
LayerArcs whole_layers(const std::vector<std::uint16_t>& device_of, int devices) {
  LayerArcs arcs{device_of, device_of, device_of, {}};
  for (const std::uint16_t device : device_of) {
    arcs.ahead.push_back(2 * (devices - 1 - device));
  }
  return arcs;
}

}  // namespace

LayerArcs layer_arcs(const ScheduleParams& params) {
  const std::size_t layers =
      static_cast<std::size_t>(params.stages) * static_cast<std::size_t>(params.chunks);
  std::vector<std::int64_t> whole;
  std::vector<std::int64_t> loop;  // gradient, then weight gradient, from the last layer on
  for (std::size_t l = 0; l < layers; ++l) {
    const PassTimes& times = params.times_of(l);
    loop.push_back(times.forward.ps);
    whole.push_back(times.forward.ps + times.input_grad.ps + times.weight_grad.ps);
  }
  for (std::size_t l = layers; l-- > 0;) {
    loop.push_back(params.times_of(l).input_grad.ps);
    loop.push_back(params.times_of(l).weight_grad.ps);
  }
  const std::vector<std::uint16_t> run_of = least_largest_runs(whole, params.stages);
  const std::vector<std::uint16_t> arc_of = least_largest_runs(loop, params.stages);
  if (largest_load(whole, run_of, params.stages) < largest_load(loop, arc_of, params.stages)) {
    return whole_layers(run_of, params.stages);
  }
  LayerArcs arcs{{arc_of.begin(), arc_of.begin() + static_cast<std::ptrdiff_t>(layers)},
                 {},
                 {},
                 std::vector<int>(layers, 0)};
  for (std::size_t l = 0; l < layers; ++l) {
    const std::size_t back = layers + 2 * (layers - 1 - l);
    arcs.gradients.push_back(arc_of[back]);
    arcs.weight_grads.push_back(arc_of[back + 1]);
  }
  return arcs;
}

}  // namespace orrery::sim
