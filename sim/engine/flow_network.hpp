// SPDX-License-Identifier: Apache-2.0
// A flow-level network alone: flows start, share their routes by max-min fairness and end, in
// integer picoseconds. A flow is cut-through: alone it takes latency + bytes / bottleneck.
// One solve per distinct timestamp. Deterministic; flows that end together are reported in order of
// id. Memory is bounded by what is in flight; ids are reused after a flow was reported.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/fair_share.hpp"
#include "sim/engine/fair_share_progress.hpp"

namespace orrery::sim {

using FlowId = std::uint32_t;

class FlowNetwork {
 public:
  ResourceId add_link(double bytes_per_second) { return fair_.add_resource(bytes_per_second); }

  // Starts now. `multiplicity` equal flows (a flow class) are one, and end together.
  FlowId start(ByteCount bytes, std::span<const ResourceId> route, SimTime latency = {},
               std::uint32_t multiplicity = 1);

  // Goes on to the next time at which flows end, and returns them. Empty when none will end:
  // nothing is left, or what is left has no capacity (in_flight() > 0).
  std::span<const FlowId> advance();

  SimTime now() const { return now_; }
  std::size_t in_flight() const { return in_flight_; }
  double rate(FlowId flow);  // bytes per second of one member, at this moment
  std::uint64_t rate_changes() const { return rate_changes_; }

 private:
  enum class State : std::uint8_t { Free, Waiting, Flowing };
  struct Flow {
    Progress progress;
    FairShare::Variable variable = 0;
    std::uint32_t multiplicity = 1;
    State state = State::Free;
    std::vector<Demand> demands;
  };

  void enter(FlowId id);
  void update_rates();

  FairShare fair_;
  std::vector<Flow> flows_;
  std::vector<FlowId> flow_of_;  // variable -> flow
  std::vector<FlowId> free_;
  std::vector<FlowId> ended_;
  IndexedHeap<std::int64_t> events_;  // ps: end of latency or of the flow
  SimTime now_;
  std::size_t in_flight_ = 0;
  std::uint64_t rate_changes_ = 0;
};

}  // namespace orrery::sim
