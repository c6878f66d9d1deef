// SPDX-License-Identifier: Apache-2.0
// Port arithmetic and wiring of folded Clos networks (docs/topologies.md), shared by the fat tree
// and the rail-optimised builder. A leaf has `down` ports to NICs and `uplinks`; two levels join
// all leaves by spines; three levels join the leaves of a pod by its spines and the pods by cores.
// The number of spines is the smallest divisor of the uplinks that has ports enough, so that every
// leaf spreads evenly; cores likewise. The counts of the DGX SuperPODs follow from these rules.
#pragma once

#include "topologies/cluster.hpp"
#include "topologies/graph.hpp"

namespace orrery::topologies {

struct ClosShape {
  int planes = 1;
  int rails = 1;      // leaves are grouped by rail; 1 = by node
  int width = 1;      // ports of one terminal
  int terminals = 0;  // per plane
  int per_leaf = 0;   // terminals
  int leaves_per_rail = 0;
  int uplinks = 0;         // of a leaf
  int levels = 1;          // in use
  int leaves_per_pod = 0;  // all of them with two levels
  int pods_per_rail = 0;
  int pods = 1;
  int spines_per_pod = 0;
  int spine_uplinks = 0;
  int cores = 0;
  int num_leaves() const { return leaves_per_rail * rails; }  // per plane, like all counts
  int num_spines() const { return spines_per_pod * pods; }
};

// Error, naming the member that would have to change, when the cluster does not fit.
ClosShape clos_shape(const Cluster& cluster, bool by_rail);
void build_clos(Graph& graph, const Cluster& cluster, const ClosShape& shape);

}  // namespace orrery::topologies
