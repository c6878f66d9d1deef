// SPDX-License-Identifier: Apache-2.0
// Which communicators `orrery calibrate nccl` measures: those a plan would use. Inside a node the
// powers of two and the whole node (on a mesh of unequal links one representative of each distinct
// subset), several groups of a node at once, 2, 4, 8, ... whole nodes, one GPU of each node, all
// rails at once, two jobs that share the spine. Pure and deterministic: every rank computes the
// same list from the same placement.
#pragma once

#include <string>
#include <vector>

namespace orrery::calibrate {

// The nodes of a run: world ranks of each, in the order of their local ranks.
struct Placement {
  std::vector<std::vector<int>> nodes;
  int num_ranks() const;
  int ranks_per_node() const;  // of the smallest node
};

// World ranks 0, 1, ... fill one node after the other.
Placement regular_placement(int nodes, int ranks_per_node);
// From the host name of each rank: nodes in the order of their first rank.
Placement placement_of(const std::vector<std::string>& host_of_rank);

// How well each two GPUs of a node are linked: any symmetric numbers that are equal for equal links
// (number of NVLinks, performance ranks of CUDA). Empty: all alike.
using LinkClasses = std::vector<std::vector<int>>;

enum class GroupKind { InNode, Subset, Concurrent, WholeNodes, OnePerNode, Rails, SharedSpine };

struct GroupPlan {
  GroupKind kind = GroupKind::InNode;
  std::string name;
  std::vector<std::vector<int>> communicators;  // disjoint, equally long, run at the same time
  int ranks_per_node = 1;                       // of one communicator
  int nodes = 1;

  int ranks() const { return static_cast<int>(communicators.front().size()); }
  // The communicator of a world rank (its colour) and its rank there; -1 when it takes no part.
  int colour_of(int rank) const;
  int rank_in_group(int rank) const;
};

// The groups that plans use on this placement, one representative of those that are alike.
std::vector<GroupPlan> plan_groups(const Placement& placement, const LinkClasses& links);

// One representative of each class of isomorphic subsets of `size` GPUs, in lexical order; exact
// for up to 8 GPUs, above that and for equal links the first `size` GPUs alone.
std::vector<std::vector<int>> distinct_subsets(const LinkClasses& links, int gpus, int size);

}  // namespace orrery::calibrate
