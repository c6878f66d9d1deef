// SPDX-License-Identifier: Apache-2.0
// Nodes of the pipelines of meshes, with the bounds that need no program: a micro-batch alone, and
// how many blocks devices have room and time for.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "search/per_block/found.hpp"
#include "search/per_block/node.hpp"
#include "search/per_block/node_bytes.hpp"
#include "search/per_block/worker.hpp"

namespace orrery::search {

// The pipelines of a mesh that are in the space; none is bounded below `least`, nor beyond `until`.
std::vector<PerBlockNode> opened(const PerBlockSpace& space, const MeshCosts& costs,
                                 std::uint32_t mesh, double least, double until);

using AskAll = std::function<std::vector<PerBlockDone>(PerBlockTask task,
                                                       const std::vector<PerBlockNode>& nodes)>;
using TakeDraft = std::function<void(const PerBlockNode& node, const DraftResult& draft)>;

// Of schedules that would be in the space if they were named, where one of the plans found has
// them: pipelines with the least bounds get the program of the space's, and those with the least
// of its bounds are drafted, fewer where lists are long.
void draft_beside(const PerBlockSpace& space, const CostsOf& costs_of, const FoundPlans& found,
                  const AskAll& ask, const TakeDraft& take);

}  // namespace orrery::search
