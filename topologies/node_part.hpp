// SPDX-License-Identifier: Apache-2.0
// A part of a node: what of a cluster's document, not validated yet, follows when the node has
// fewer GPUs than the one that the document was made of. What is not there, or of another type,
// stays.
#pragma once

#include <cstdint>

#include "base/json.hpp"

namespace orrery::topologies {

// 0 where they are missing.
struct NodeParts {
  std::int64_t gpus = 0;
  std::int64_t nics = 0;
};

NodeParts node_parts(const Json& document);

// Each of these changes the document where it has fewer than `gpus_before` GPUs a node now.

// A part of a node brings its part of the NICs, at least one.
void scale_nics(Json& document, std::int64_t gpus_before);
// The stated ring is that of the whole node; what a part's rings move its links say.
void keep_whole_ring(Json& document, std::int64_t gpus_before);
// The links among the first GPUs stay.
void cut_mesh(Json& document, std::int64_t gpus_before);
// No more GPUs than one board of NVSwitches has need no other board.
void leave_board(Json& document, std::int64_t gpus_before);

// With more NICs a GPU than before, a rail's leaf holds as many nodes as its ports do.
void fit_leaves(Json& document, const NodeParts& before);

}  // namespace orrery::topologies
