// SPDX-License-Identifier: Apache-2.0
// Of the drafts of a batch the best, where it is faster than all plans before: random neighbours of
// it are searched several times beside each other, since luck decides how far each of them leads.
#pragma once

#include <functional>
#include <vector>

#include "search/per_block/worker.hpp"

namespace orrery::search {

using AskWorks = std::function<std::vector<PerBlockDone>(const std::vector<PerBlockWork>& batch)>;

// `done` answers `batch`; the draft there is replaced by what is faster and fits. `best`: seconds
// of the best plan so far. Plans beside the space are left as they are: their lists take too long.
void anneal_best(const std::vector<PerBlockNode>& batch, std::vector<PerBlockDone>& done,
                 double best, const PerBlockSpace& space, const AskWorks& ask);

}  // namespace orrery::search
