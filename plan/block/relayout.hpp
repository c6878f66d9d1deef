// SPDX-License-Identifier: Apache-2.0
// Conversion of the residual stream between neighbouring blocks of different layouts (Rule 3 of
// layout.hpp between consecutive maps). Both meshes are cut into their common factors; on each of
// those the stream goes from one placement to another: a slice is free, a dimension no longer cut
// is gathered, one cut instead of another is exchanged all-to-all. The gradient takes the adjoint.
#pragma once

#include <vector>

#include "plan/block/cost.hpp"

namespace orrery::plan {

// A conversion over factors of the two meshes; a share of the bytes is what one rank holds.
struct StreamConversion {
  sim::CommKind kind = sim::CommKind::None;
  std::vector<Extent> factors;
  int slices = 1;       // parts of what a rank held of which it exchanges one
  bool uneven = false;  // exchanged among ranks of which some hold more of what one needs
  int ranks() const;
  // Of the buffer, where a rank holds so many bytes before all conversions and after them. An
  // uneven exchange counts as if a rank took part with all that it has on the side with more.
  Bytes bytes(Bytes before, Bytes after) const;
};

// From one block's stream to the next's: slices first, gathers last. Backward: the same with from
// and to swapped. `reordered`: context ranks of the two hold other tokens of the sequence.
std::vector<StreamConversion> stream_conversions(const Mesh& from_mesh, const Layout& from,
                                                 const Mesh& to_mesh, const Layout& to,
                                                 bool reordered = false);

// The same for two blocks of a plan.
std::vector<StreamConversion> stream_conversions(const Plan& plan, const BlockPlan& from,
                                                 const BlockPlan& to);

struct Relayout {
  Seconds forward;
  Seconds backward;
};

// From the block before (its local output is `before` bytes) to the next (`after` bytes).
Relayout relayout(const Plan& plan, const BlockPlan& from, ByteCount before, const BlockPlan& to,
                  ByteCount after, const BlockCosts& costs);

// The same of all that goes from one block to the next: the stream, and what it carries where the
// next block takes it.
Relayout relayout(const Plan& plan, const BlockPlan& from, const BlockCost& before,
                  const BlockPlan& to, const BlockCost& after, const BlockCosts& costs);

}  // namespace orrery::plan
