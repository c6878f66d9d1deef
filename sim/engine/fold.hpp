// SPDX-License-Identifier: Apache-2.0
// Folding of identical ranks: a smaller program with the same times. Nodes that must start and end
// together become one node, devices whose streams run the same nodes become one device, resources
// with the same load become one resource on which a folded flow counts as many times as the flows
// it stands for cross that resource.
// Found by partition refinement: two nodes are equal when their own description, the sets of their
// inputs and of their stream predecessors, the resources and the counters they use are equal.
// One pass in dependency order settles all but resources and counters, whose colours are refined
// until nothing changes. Equal colours give equal times because max-min shares are unique and
// counters serve nodes in order of id, which folding keeps.
// Everything that a program could not finish (a cycle) stays apart. Version uses survive as data
// dependencies only. O(rounds (V + E) log) with two or three rounds for usual programs.
#pragma once

#include <vector>

#include "sim/engine/program.hpp"

namespace orrery::sim {

struct Fold {
  Program program;                  // finalized
  std::vector<NodeId> node_of;      // per node of the original: the one that stands for it
  std::vector<StreamId> stream_of;  // multiplicities of the folded streams add up
  std::vector<PoolId> pool_of;
};

Fold fold(const Program& program);

}  // namespace orrery::sim
