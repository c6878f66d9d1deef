// SPDX-License-Identifier: Apache-2.0
// Conversion of the residual stream between neighbouring blocks of different layouts (Rule 3 of
// layout.hpp between consecutive maps). Both meshes are cut into their common factors; on each of
// those the stream goes from one placement to another: a slice is free, a dimension no longer cut
// is gathered, one cut instead of another is exchanged all-to-all. The gradient takes the adjoint.
#pragma once

#include <string_view>
#include <vector>

#include "plan/block/cost.hpp"

namespace orrery::plan {

// A conversion over factors of the two meshes; a share of the bytes is what one rank holds.
struct StreamConversion {
  sim::CommKind kind = sim::CommKind::None;
  std::vector<Extent> factors;
  int slices = 1;         // parts of what a rank held of which it exchanges one
  bool uneven = false;    // exchanged among ranks of which some hold more of what one needs
  bool scatters = false;  // some rank needs nothing of what it has
  int ranks() const;
  // Of the buffer, where a rank holds so many bytes before all conversions and after them. An
  // uneven exchange counts as if a rank took part with all that it has on the side with more.
  Bytes bytes(Bytes before, Bytes after) const;
  // Of such a buffer what the rank sends that sends most. In most exchanges each keeps an n-th;
  // where a dimension is cut in another order some keep more, and others nothing.
  Bytes sent(Bytes buffer) const;
};

// From one block's stream to the next's: slices first, gathers last. Backward: the same with from
// and to swapped. `reordered`: context ranks of the two hold other tokens of the sequence.
std::vector<StreamConversion> stream_conversions(const Mesh& from_mesh, const Layout& from,
                                                 const Mesh& to_mesh, const Layout& to,
                                                 bool reordered = false);

// The same for two blocks of a plan.
std::vector<StreamConversion> stream_conversions(const Plan& plan, const BlockPlan& from,
                                                 const BlockPlan& to);

// A block and the one behind it: numbers in the network, and their layouts.
struct Neighbours {
  int block;
  const BlockPlan& from;
  int next;
  const BlockPlan& to;
};

// A tensor that goes from one to the other: what a rank holds of it in either layout.
struct Crossing {
  std::string_view name;
  ByteCount before;
  ByteCount after;
  bool trained = true;  // its gradient travels back
};

// The output of the block, and what it carries where the next one takes it. All items of an
// encoder, also where it makes them in several runs.
std::vector<Crossing> crossings(const Plan& plan, const BlockCosts& costs,
                                const Neighbours& neighbours, const Slice& slice = {});

struct Relayout {
  Seconds forward;
  Seconds backward;
};

// Of a tensor of which a rank holds so many bytes before and after.
Relayout relayout(const Plan& plan, const BlockPlan& from, ByteCount before, const BlockPlan& to,
                  ByteCount after, const BlockCosts& costs);

// Of all that goes from one block to the next.
Relayout relayout(const Plan& plan, const BlockCosts& costs, const Neighbours& neighbours,
                  const Slice& slice = {});

}  // namespace orrery::plan
