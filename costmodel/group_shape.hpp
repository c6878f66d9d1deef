// SPDX-License-Identifier: Apache-2.0
// The layout of a group of ranks over nodes, as a collective sees it: counts and distances, no
// identities.
#pragma once

namespace orrery::costmodel {

// A group of ranks laid out regularly: `ranks_per_node` of them on each of `nodes` nodes.
struct GroupShape {
  int ranks = 1;
  int ranks_per_node = 1;
  int nodes = 1;
  // Concurrent groups of the same kind on a node (its other ranks) share the node's NICs.
  int groups_per_node = 1;
  int node_stride = 1;  // distance between neighbouring nodes of the group
  int gpu_stride = 1;   // distance between its neighbouring GPUs of a node
  bool operator==(const GroupShape&) const = default;
};

// The group of `size` ranks with distance `stride` between neighbours, `per_node` GPUs a node.
GroupShape make_group(int size, int stride, int per_node);

}  // namespace orrery::costmodel
