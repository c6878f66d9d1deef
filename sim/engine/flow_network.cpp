// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/flow_network.hpp"

#include "base/error.hpp"

namespace orrery::sim {

FlowId FlowNetwork::start(ByteCount bytes, std::span<const ResourceId> route, SimTime latency,
                          std::uint32_t multiplicity) {
  ORRERY_CHECK(bytes.value() >= 0 && latency.ps >= 0 && multiplicity > 0, "a flow");
  if (free_.empty()) {
    free_.push_back(static_cast<FlowId>(flows_.size()));
    flows_.emplace_back();
    events_.reserve_ids(flows_.size());
  }
  const FlowId id = free_.back();
  free_.pop_back();
  Flow& flow = flows_[id];
  flow.progress = {static_cast<double>(bytes.value()), 0.0, now_ + latency};
  flow.multiplicity = multiplicity;
  flow.demands.clear();
  for (const ResourceId link : route) {
    flow.demands.push_back({link, 1.0});
  }
  ++in_flight_;
  if (latency.ps == 0 && bytes.value() > 0) {
    enter(id);
  } else {
    flow.state = State::Waiting;
    events_.set(id, (now_ + latency).ps);
  }
  return id;
}

void FlowNetwork::enter(FlowId id) {
  Flow& flow = flows_[id];
  flow.state = State::Flowing;
  flow.variable = fair_.add(flow.demands, FairShare::kUnbounded, 1.0, flow.multiplicity);
  if (flow_of_.size() <= flow.variable) {
    flow_of_.resize(flow.variable + 1);
  }
  flow_of_[flow.variable] = id;
}

void FlowNetwork::update_rates() {
  if (!fair_.needs_solve()) {
    return;
  }
  for (const FairShare::Variable variable : fair_.solve()) {
    const FlowId id = flow_of_[variable];
    Progress& progress = flows_[id].progress;
    progress.change_rate(now_, fair_.rate(variable));
    const SimTime end = progress.end();
    if (end != SimTime::max()) {
      events_.set(id, end.ps);
    } else if (events_.contains(id)) {
      events_.erase(id);
    }
    ++rate_changes_;
  }
}

double FlowNetwork::rate(FlowId flow) {
  update_rates();
  return flows_[flow].state == State::Flowing ? fair_.rate(flows_[flow].variable) : 0.0;
}

std::span<const FlowId> FlowNetwork::advance() {
  for (const FlowId id : ended_) {
    free_.push_back(id);
  }
  ended_.clear();
  while (ended_.empty()) {
    update_rates();
    if (events_.empty()) {
      break;
    }
    now_ = {events_.top().key};
    while (!events_.empty() && events_.top().key == now_.ps) {
      const FlowId id = events_.top().id;
      events_.pop();
      Flow& flow = flows_[id];
      if (flow.state == State::Waiting && flow.progress.left > 0.0) {
        enter(id);
        continue;
      }
      if (flow.state == State::Flowing) {
        fair_.remove(flow.variable);
      }
      flow.state = State::Free;
      ended_.push_back(id);
      --in_flight_;
    }
  }
  return ended_;
}

}  // namespace orrery::sim
