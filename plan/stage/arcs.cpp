// SPDX-License-Identifier: Apache-2.0
#include "plan/stage/arcs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/schedule_traits.hpp"

namespace orrery::plan {

namespace {

std::uint16_t device(const sim::PipelineOrder& order, sim::Lane lane, std::size_t stage) {
  return sim::device_of(order, lane, stage);
}

LiveCounts& entry_of(std::vector<LiveCounts>& devices, std::size_t device, std::size_t stage) {
  LiveCounts& live = devices[device];
  if (live.stages.empty() || live.stages.back() != static_cast<int>(stage)) {
    live.stages.push_back(static_cast<int>(stage));
    live.versions.push_back(1);
    live.updates.push_back(false);
  }
  return live;
}

// Micro-batches between the forward and the update of a virtual stage, as the edge of the update
// admits them.
std::vector<int> in_flight_of(const sim::PipelineOrder& order, std::size_t stages) {
  std::vector<int> in_flight(stages, 1);
  for (const sim::Edge& edge : order.edges) {
    if (edge.from_lane == sim::Lane::Optimizer) {
      in_flight[edge.from] = edge.shift;
    }
  }
  return in_flight;
}

}  // namespace

std::string arcs_problem(const Plan& plan) {
  if (!schedule_traits(plan).runs_arcs || plan.network.chain.empty()) {
    return "";
  }
  const models::NetworkSpec& spec = plan.network.spec;
  if (spec.encoder.layers > 0 || spec.encoder_layers > 0) {
    return fmt::format(
        "{} has an encoder, and gradients run through one chain of layers: set the "
        "schedule to \"pipedream\"",
        spec.name);
  }
  if (!plan.execution.overlap_p2p) {
    return "what passes on other devices need is sent beside the passes: set overlap_p2p to true";
  }
  for (const BlockRun& run : plan.blocks) {
    if (run.layout.zero_stage > 1) {
      return fmt::format(
          "parameters are whole on the devices that use them, but zero_stage = {}: set zero_stage "
          "to 1",
          run.layout.zero_stage);
    }
    if (run.layout.offload.any()) {
      return "saved activations go on to other devices, not to the host: offload nothing";
    }
  }
  return "";
}

void add_arc_transfers(const Plan& plan, const sim::PipelineOrder& order,
                       const std::vector<StageCost>& stages,
                       const std::vector<SplitBackwards::Kept>& kept, const BlockCosts& costs,
                       sim::PipelineCosts& passes) {
  passes.send_backward = transfers(plan, costs, stages, order.gradient_device_of);
  TransferTimes known(costs);
  const auto send = [&](ByteCount bytes, sim::Lane from, sim::Lane to, std::size_t stage) {
    return known.of(plan, bytes, 1, device(order, from, stage), device(order, to, stage));
  };
  for (const sim::Edge& edge : order.edges) {
    const std::size_t s = edge.from;
    SimTime time;
    if (edge.from_lane == sim::Lane::Forward) {
      time = send(stages[s].saved + stages[s].saved_ends, edge.from_lane, edge.to_lane, s);
    } else if (edge.from_lane == sim::Lane::Gradient) {
      time = send(kept[s].layers + kept[s].ends, edge.from_lane, edge.to_lane, s);
    } else {  // to the forward, and to the input gradient where it is on a third device
      const ByteCount parameters = stages[s].states.parameters;
      time = send(parameters, edge.from_lane, sim::Lane::Forward, s);
      if (device(order, sim::Lane::Gradient, s) != device(order, sim::Lane::Forward, s)) {
        time += send(parameters, edge.from_lane, sim::Lane::Gradient, s);
      }
    }
    passes.edge_latency.push_back(time);
  }
}

std::vector<LiveCounts> arc_counts(const sim::PipelineOrder& order,
                                   const std::vector<int>& versions) {
  std::vector<LiveCounts> devices(order.passes.size());
  std::vector<std::vector<int>> whole(devices.size());  // by entry
  std::vector<std::vector<int>> kept(devices.size());
  const std::vector<int> in_flight_by_stage = in_flight_of(order, versions.size());
  for (std::size_t s = 0; s < versions.size(); ++s) {
    const std::size_t forward = device(order, sim::Lane::Forward, s);
    const std::size_t gradient = device(order, sim::Lane::Gradient, s);
    const std::size_t update = device(order, sim::Lane::WeightGrad, s);
    const int in_flight = in_flight_by_stage[s];
    for (const std::size_t on : {forward, gradient, update}) {
      LiveCounts& live = entry_of(devices, on, s);
      if (live.stages.size() > whole[on].size()) {
        whole[on].push_back(on == gradient ? in_flight : on == forward ? 1 : 0);
        kept[on].push_back(on == update && on != gradient ? in_flight : 0);
        live.versions.back() = on == gradient ? versions[s] : 1;
      }
      live.updates.back() = on == update;
    }
  }
  for (std::size_t d = 0; d < devices.size(); ++d) {
    devices[d].splits = true;
    whole[d].insert(whole[d].end(), kept[d].begin(), kept[d].end());
    devices[d].maxima.push_back(std::move(whole[d]));
  }
  return devices;
}

SimTime busiest_link(const sim::PipelineOrder& order, const sim::PipelineCosts& passes) {
  std::vector<SimTime> out(order.passes.size());
  std::vector<SimTime> in(order.passes.size());
  const auto add = [&](SimTime time, std::uint16_t from, std::uint16_t to) {
    out[from] += time;
    in[to] += time;
  };
  for (std::size_t s = 0; s < passes.send_forward.size(); ++s) {
    add(passes.send_forward[s], device(order, sim::Lane::Forward, s),
        device(order, sim::Lane::Forward, s + 1));
    add(passes.send_backward[s], device(order, sim::Lane::Gradient, s + 1),
        device(order, sim::Lane::Gradient, s));
  }
  for (std::size_t e = 0; e < passes.edge_latency.size(); ++e) {
    const sim::Edge& edge = order.edges[e];
    add(passes.edge_latency[e], device(order, edge.from_lane, edge.from),
        device(order, edge.to_lane, edge.to));
  }
  return std::max(*std::max_element(out.begin(), out.end()),
                  *std::max_element(in.begin(), in.end()));
}

}  // namespace orrery::plan
