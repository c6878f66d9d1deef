// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/share_costs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/versions.hpp"

namespace orrery::sim {

namespace {

std::int64_t scale_of(const PipelineOrder& order) {
  return order.parts.empty() ? pieces_of(order) : order.parts_per_share;
}

// Times that a run so long has to be divided by.
std::int64_t divisor_for(double longest) {
  return static_cast<std::int64_t>(std::ceil(longest / kLongestRun * (1 + 1e-9)));
}
SimTime divided(SimTime time, std::int64_t by) {  // to the nearest
  return {time.ps / by + (time.ps % by * 2 >= by ? 1 : 0)};
}

}  // namespace

void keep_in_range(const PipelineOrder& order, ShareCosts& scaled) {
  PipelineCosts& costs = scaled.costs;
  const double longest = longest_run(order, costs);
  if (scaled.scale == 1 || longest <= kLongestRun) {
    return;
  }
  // The least divisor of the scale that is enough; all of it where none is.
  std::int64_t by = std::min(scaled.scale, divisor_for(longest));
  while (scaled.scale % by != 0) {
    ++by;
  }
  for (std::vector<SimTime>* const times :
       {&costs.forward, &costs.input_grad, &costs.weight_grad, &costs.backward, &costs.recompute,
        &costs.optimizer, &costs.send_forward, &costs.send_backward, &costs.edge_latency,
        &costs.unit_forward, &costs.unit_input_grad, &costs.unit_weight_grad, &costs.unit_backward,
        &costs.unit_send_forward, &costs.unit_send_backward}) {
    for (SimTime& time : *times) {
      time = divided(time, by);
    }
  }
  scaled.scale /= by;
}

ShareCosts share_costs(const PipelineOrder& order, const PassTimes& share) {
  ShareCosts result;
  result.scale = scale_of(order);
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  PipelineCosts& costs = result.costs;
  const SimTime send = share.send * result.scale;
  std::vector<SimTime> predictions;
  const auto between = [&](Lane from_lane, std::size_t from, Lane to_lane, std::size_t to) {
    return device_of(order, from_lane, from) == device_of(order, to_lane, to) ? SimTime{} : send;
  };
  for (std::size_t s = 0; s < stages; ++s) {
    const int parts = order.parts.empty() ? 1 : order.parts[s];
    costs.forward.push_back(share.forward * parts);
    costs.input_grad.push_back(share.input_grad * parts);
    costs.weight_grad.push_back(share.weight_grad * parts);
    costs.backward.push_back(share.backward() * parts);
    costs.recompute.push_back(share.forward * parts);
    predictions.push_back(share.prediction * parts);
    if (s + 1 < stages) {
      costs.send_forward.push_back(between(Lane::Forward, s, Lane::Forward, s + 1));
      costs.send_backward.push_back(between(Lane::Gradient, s + 1, Lane::Gradient, s));
    }
  }
  for (const Edge& edge : order.edges) {
    costs.edge_latency.push_back(between(edge.from_lane, edge.from, edge.to_lane, edge.to));
  }
  if (share.prediction > SimTime{}) {
    add_predictions(order, predictions, costs);
  }
  keep_in_range(order, result);
  return result;
}

PassTimes planning_times(const PipelineOrder& order, PassTimes share) {
  // Schedules multiply all times by the parts of a stage (with_stage_times), transfers by the most.
  const int parts =
      order.parts.empty() ? 1 : *std::max_element(order.parts.begin(), order.parts.end());
  share.send = SimTime{(share.send * scale_of(order)).ps / parts};
  return share;
}

void in_lowest_terms(std::vector<PassTimes>& times) {
  const auto members = [](PassTimes& of) {
    return std::array<SimTime*, 6>{&of.forward, &of.input_grad, &of.weight_grad,
                                   &of.send,    &of.whole,      &of.prediction};
  };
  std::int64_t common = 0;
  for (PassTimes& of : times) {
    for (const SimTime* time : members(of)) {
      common = std::gcd(common, time->ps);
    }
  }
  for (PassTimes& of : times) {
    for (SimTime* time : members(of)) {
      time->ps /= std::max<std::int64_t>(1, common);
    }
  }
}

PipelineCosts stage_costs(const PipelineOrder& order, const ScheduleParams& params) {
  PipelineCosts costs;
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  for (std::size_t s = 0; s < stages; ++s) {
    const PassTimes& times = params.times_of(s);
    costs.forward.push_back(times.forward);
    costs.input_grad.push_back(times.input_grad);
    costs.weight_grad.push_back(times.weight_grad);
    costs.backward.push_back(times.backward());
    costs.recompute.push_back(times.forward);
    if (s + 1 < stages) {
      const bool crosses = order.device_of[s] != order.device_of[s + 1];
      costs.send_forward.push_back(crosses ? times.send : SimTime{});
    }
  }
  costs.send_backward = costs.send_forward;
  return costs;
}

double largest_peak(const PipelineOrder& order, const PipelineResult& result) {
  std::int64_t peak = 0;
  for (const DeviceUse& use : result.devices) {
    peak = std::max(peak, use.peak_chunks);
  }
  return static_cast<double>(peak) / pieces_of(order);
}

SimTime idle_of(const DeviceUse& use) { return use.last_end - use.first_start - use.busy; }

double bubble_fraction(const PipelineOrder& order, const PipelineResult& result) {
  const PassInputs inputs(order);
  SimTime largest;
  double fraction = 0.0;
  for (std::size_t d = 0; d < result.devices.size(); ++d) {
    const DeviceUse& use = result.devices[d];
    const auto& list = order.passes[d];
    const bool layers = std::any_of(list.begin(), list.end(), [&](const Pass& pass) {
      return inputs.role(pass.virtual_stage) == Role::Layers;
    });
    if (layers && idle_of(use) > largest) {
      largest = idle_of(use);
      fraction = static_cast<double>(largest.ps) /
                 static_cast<double>((use.last_end - use.first_start).ps);
    }
  }
  return fraction;
}

std::int64_t num_passes(const PipelineOrder& order) {
  std::int64_t passes = 0;
  for (const std::vector<Pass>& list : order.passes) {
    passes += std::ssize(list);
  }
  return passes;
}

namespace {

constexpr std::int64_t kUnlike = -1;

// What edges bring to each pass of a lane from other devices; kUnlike: not as much to all.
std::vector<std::int64_t> transfers_over_edges(const PipelineOrder& order,
                                               const PassInputs& inputs) {
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  std::vector<std::int64_t> transfers(kNumLanes * stages, 0);
  for (std::size_t lane = 0; lane < transfers.size(); ++lane) {
    const std::size_t stage = lane % stages;
    const std::uint16_t device = device_of(order, static_cast<Lane>(lane / stages), stage);
    for (const PassInputs::EdgeInput& edge : inputs.edges_to(lane)) {
      if (edge.shift != 0 || inputs.units(edge.stage) != inputs.units(stage)) {
        transfers[lane] = kUnlike;
        break;
      }
      transfers[lane] += device_of(order, edge.lane, edge.stage) != device ? 1 : 0;
    }
  }
  return transfers;
}

}  // namespace

std::int64_t num_transfers(const PipelineOrder& order) {
  const PassInputs inputs(order);
  const std::vector<std::int64_t> over_edges = transfers_over_edges(order, inputs);
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  std::int64_t transfers = 0;
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    const auto count = [&](const PassInput& input) {
      transfers += device_of(order, input.lane, input.virtual_stage) != d ? 1 : 0;
      return true;
    };
    for (const Pass& pass : order.passes[d]) {
      const auto lane = static_cast<std::size_t>(lane_of(pass.kind)) * stages + pass.virtual_stage;
      (void)inputs.visit_neighbour(pass, count);
      if (over_edges[lane] == kUnlike) {
        (void)inputs.for_each_edge(pass, count);
      } else {
        transfers += over_edges[lane];
      }
    }
  }
  return transfers;
}

}  // namespace orrery::sim
