// SPDX-License-Identifier: Apache-2.0
// A collective inside a program, in two forms that agree without contention:
//   expand_collective     detail mode: every message is a Flow along its route,
//   add_collective_group  one Group whose demands are the link loads of the algorithm; alone it
//                         takes what the messages take alone (collective_time.hpp).
// Rank-local steps (collective.hpp): before each step a rank waits for everything it sent and
// received in the step before. Costs O(messages) nodes, or O(messages) time and O(links) demands.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sim/collective.hpp"
#include "sim/collective_time.hpp"
#include "sim/engine/program.hpp"

namespace orrery::sim {

// The shared resources a message crosses, from a rank to another; an empty function stands for
// contention-free messages of latency + bytes / bandwidth.
using CollectiveRoutes = std::function<std::vector<ResourceId>(std::uint32_t, std::uint32_t)>;

// Rank r begins when after[r] has ended (kNone or an empty span: at once). Returns one node a rank
// that ends when its part of the collective has.
std::vector<NodeId> expand_collective(Program& program, const CollectiveAlgorithm& algorithm,
                                      int ranks, ByteCount size, const CollectiveCosts& costs,
                                      const CollectiveRoutes& routes, const Tag& tag,
                                      std::span<const NodeId> after = {});

// Bytes that each resource carries in the whole collective, in order of resource.
std::vector<Demand> collective_loads(const CollectiveAlgorithm& algorithm, int ranks,
                                     ByteCount size, const CollectiveRoutes& routes);

NodeId add_collective_group(Program& program, std::span<const StreamId> streams,
                            const CollectiveAlgorithm& algorithm, int ranks, ByteCount size,
                            const CollectiveCosts& costs, const CollectiveRoutes& routes,
                            const Tag& tag);

}  // namespace orrery::sim
