// SPDX-License-Identifier: Apache-2.0
// The steps of a block as lists of collectives (plan/simulation/layout_report.hpp). O(steps x
// distinct collectives).
#pragma once

#include <vector>

#include "plan/block/steps.hpp"
#include "plan/simulation/layout_report.hpp"

namespace orrery::plan {

// Bytes that a rank sends of a buffer, as nccl-tests prints it, in a bandwidth-optimal ring.
Bytes ring_bytes(sim::CommKind kind, Bytes buffer, int ranks);

// Equal collectives of one pass count once.
void add_collective(ReportedCollective one, std::vector<ReportedCollective>& list);

// The collectives among the steps of a pass. An exchange of tokens that are sent once to a node
// (Execution::deduplicated_dispatch) is two: what crosses between nodes, and the copies inside.
// `steps` are those of a plan that streams none; `execution` says which it streams.
void add_collectives_of(const std::vector<Step>& steps, const models::Block& block,
                        const Execution& execution, DType precision,
                        std::vector<ReportedCollective>& list);

}  // namespace orrery::plan
