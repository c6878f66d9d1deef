// SPDX-License-Identifier: Apache-2.0
#include "sim/share_costs.hpp"

#include "sim/pass_inputs.hpp"

namespace orrery::sim {

ShareCosts share_costs(const PipelineOrder& order, const PassTimes& share) {
  ShareCosts result;
  result.scale = order.parts.empty() ? pieces_of(order) : order.parts_per_share;
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  PipelineCosts& costs = result.costs;
  const SimTime send = share.send * result.scale;
  const auto between = [&](std::size_t a, std::size_t b) {
    return order.device_of[a] == order.device_of[b] ? SimTime{} : send;
  };
  for (std::size_t s = 0; s < stages; ++s) {
    const int parts = order.parts.empty() ? 1 : order.parts[s];
    costs.forward.push_back(share.forward * parts);
    costs.input_grad.push_back(share.input_grad * parts);
    costs.weight_grad.push_back(share.weight_grad * parts);
    costs.backward.push_back((share.input_grad + share.weight_grad) * parts);
    if (s + 1 < stages) {
      costs.send_forward.push_back(between(s, s + 1));
    }
  }
  costs.send_backward = costs.send_forward;
  for (const Edge& edge : order.edges) {
    costs.edge_latency.push_back(between(edge.from, edge.to));
  }
  return result;
}

SimTime idle_of(const DeviceUse& use) { return use.last_end - use.first_start - use.busy; }

double bubble_fraction(const PipelineResult& result) {
  SimTime largest;
  double fraction = 0.0;
  for (const DeviceUse& use : result.devices) {
    if (idle_of(use) > largest) {
      largest = idle_of(use);
      fraction = static_cast<double>(largest.ps) /
                 static_cast<double>((use.last_end - use.first_start).ps);
    }
  }
  return fraction;
}

std::int64_t num_transfers(const PipelineOrder& order) {
  const PassInputs inputs(order);
  std::int64_t transfers = 0;
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    for (const Pass& pass : order.passes[d]) {
      inputs.for_each(pass, [&](const PassInput& input) {
        transfers += order.device_of[input.virtual_stage] != d ? 1 : 0;
      });
    }
  }
  return transfers;
}

}  // namespace orrery::sim
