// SPDX-License-Identifier: Apache-2.0
// The nodes of a run that share resources: how much of each is left, at which rate it shrinks and
// when it will end. Rates come from the max-min solver, once per distinct time; only nodes whose
// rate changed are touched. Ends are rounded up to the next picosecond; an excess below a
// thousandth of a picosecond (or 2^-50 of the time that is left) counts as rounding error of the
// doubles.
#pragma once

#include <utility>
#include <vector>

#include "base/sim_time.hpp"
#include "sim/engine/fair_share.hpp"
#include "sim/engine/indexed_heap.hpp"
#include "sim/engine/program.hpp"

namespace orrery::sim {

class FluidNodes {
 public:
  explicit FluidNodes(const Program& program);

  // The latency of the node is over: it shares from now on (effective at the next solve).
  void join(NodeId node, SimTime now);
  bool needs_solve() const { return share_.needs_solve(); }
  void solve(SimTime now);
  SimTime next_end() const { return ends_.empty() ? SimTime::max() : ends_.top().key; }
  NodeId pop();  // the node that ends next, smallest id first; it shares no longer
  std::vector<ResourceId> take_bottlenecks() { return std::move(bottleneck_); }

 private:
  struct Progress {  // of the node behind a variable of the solver
    NodeId node;
    double left;
    double rate;  // per second, since `since`
    SimTime since;
  };

  const Program& program_;
  FairShare share_;
  IndexedHeap<SimTime> ends_;  // by node
  std::vector<Progress> progress_;
  std::vector<FairShare::Variable> variable_of_;
  std::vector<ResourceId> bottleneck_;
};

}  // namespace orrery::sim
