// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/engine_fluid.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "sim/engine/engine_state.hpp"

namespace orrery::sim {
namespace {

SimTime time_left(double left, double rate) {
  const double picoseconds = left / rate * 1e12;
  if (!(picoseconds < 0x1p62)) {
    time_overflow();
  }
  const double slop = std::max(1e-3, picoseconds * 0x1p-50);
  return {static_cast<std::int64_t>(std::max(0.0, std::ceil(picoseconds - slop)))};
}

}  // namespace

FluidNodes::FluidNodes(const Program& program)
    : program_(program),
      variable_of_(program.num_nodes(), kNone),
      bottleneck_(program.num_nodes(), kNone) {
  for (const Resource& resource : program.resources()) {
    share_.add_resource(resource.capacity);
  }
  ends_.reserve_ids(program.num_nodes());
}

void FluidNodes::join(NodeId node, SimTime now) {
  const FairShare::Variable variable =
      share_.add(program_.demands(node), program_.rate_bound(node));
  if (variable >= progress_.size()) {
    progress_.resize(variable + 1);
  }
  progress_[variable] = {node, program_.work(node), 0.0, now};
  variable_of_[node] = variable;
}

void FluidNodes::solve(SimTime now) {
  for (const FairShare::Variable variable : share_.solve()) {
    Progress& progress = progress_[variable];
    if (now > progress.since) {
      progress.left -= progress.rate * to_seconds(now - progress.since).value();
      progress.left = std::max(progress.left, 0.0);
      progress.since = now;
    }
    progress.rate = share_.rate(variable);
    bottleneck_[progress.node] = share_.bottleneck(variable);
    ends_.set(progress.node, checked_sum(now, time_left(progress.left, progress.rate)));
  }
}

NodeId FluidNodes::pop() {
  const NodeId node = ends_.top().id;
  ends_.pop();
  share_.remove(variable_of_[node]);
  return node;
}

}  // namespace orrery::sim
