// SPDX-License-Identifier: Apache-2.0
// Why a program takes as long as it does: the critical path, from the start to the end without a
// gap, and the slack of every node. Edges are data dependencies and stream order.
#pragma once

#include <vector>

#include "sim/engine/metrics.hpp"

namespace orrery::sim {

// The node determined the time from `from` to `to`: its whole duration, or nothing where the start
// of a node released the next one through a counter. `by` is what bounded its start: the step
// before.
struct PathStep {
  NodeId node;
  SimTime from;
  SimTime to;
  BoundBy by;
};

// In order of time. Of several nodes that end last, the one with the smallest id. O(path log V).
std::vector<PathStep> critical_path(const Program& program, const Timeline& timeline);

// Where the time of a critical path goes, largest first: passes and communication by kind, shared
// nodes by the resource that set their rate in the end (kNone for fixed durations).
struct PathShare {
  PassKind pass;
  CommKind comm;
  ResourceId bottleneck;
  SimTime time;
};

std::vector<PathShare> path_shares(const Program& program, const Timeline& timeline,
                                   const std::vector<PathStep>& path);

// How much later each node could start without a longer makespan, all durations kept as they were
// (shared nodes) and counters ignored; {-1} for nodes that never ran. O(V + E).
std::vector<SimTime> slack(const Program& program, const Timeline& timeline);

}  // namespace orrery::sim
