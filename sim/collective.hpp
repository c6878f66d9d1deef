// SPDX-License-Identifier: Apache-2.0
// Collective algorithms as steps of point-to-point flows, for detail mode and for link loads.
// One file in sim/collectives/ defines one constant `collective_<file name>`. Bytes follow the
// bandwidth-optimal conventions: all-reduce and all-to-all of S bytes per rank, all-gather whose
// result is S, reduce-scatter whose input is S.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "sim/tags.hpp"

namespace orrery::sim {

// One message of a step; messages of step k + 1 of a rank wait for the message it receives in step k.
struct CollectiveMessage {
  std::uint32_t step;
  std::uint32_t from;  // rank within the group
  std::uint32_t to;
  ByteCount bytes;
};

struct CollectiveAlgorithm {
  std::string_view name;  // "ring-all-reduce"
  CommKind kind;
  std::string_view description;
  std::string_view source;
  // Messages in order of step; ranks >= 1. Splits S into `ranks` pieces, the first S mod ranks
  // pieces one byte larger, so that bytes are conserved exactly.
  std::vector<CollectiveMessage> (*messages)(int ranks, ByteCount size);
};

std::span<const CollectiveAlgorithm* const> collective_table();  // generated; sorted by name
const CollectiveAlgorithm& find_collective(std::string_view name, std::string_view where);

}  // namespace orrery::sim
