// SPDX-License-Identifier: Apache-2.0
// Which queries of a context rank see keys of which rank, where attention is causal and has a
// window. Ranks hold runs of positions in their order, or two chunks each, one from either end
// (zig-zag); every slice of the sequence is cut alike.
#pragma once

#include <cstdint>
#include <map>

namespace orrery::plan {

struct RingShape {
  std::int64_t tokens = 0;  // queries of a rank
  std::int64_t ranks = 1;
  std::int64_t earlier = 0;  // positions of earlier slices, over all ranks
  std::int64_t window = 0;   // keys that a query sees, its own among them
  bool zigzag = true;
};

// Queries that see a key of a part, and pairs of both.
struct RingPart {
  std::int64_t rows = 0;
  double pairs = 0;
  auto operator<=>(const RingPart&) const = default;
};

// Of the queries of a rank, by the rank that holds the keys; of those without any, none. O(keys in
// the window / chunk), up to the logarithm.
std::map<std::int64_t, RingPart> ring_parts(const RingShape& shape, std::int64_t rank);

// Pairs of the rank that has most, whichever keys it sees them of.
double most_pairs(const RingShape& shape);

}  // namespace orrery::plan
