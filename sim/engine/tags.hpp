// SPDX-License-Identifier: Apache-2.0
// What a node of a program stands for, in the field's terms. The engine never looks at tags;
// reports and traces do.
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery::sim {

enum class PassKind : std::uint8_t {
  Forward,
  InputGrad,   // B of a split backward
  WeightGrad,  // W of a split backward
  Backward,    // fused input- and weight-gradient
  Recompute,
  Optimizer,
  Communication,
  Transfer,  // point-to-point between pipeline stages
  Offload,
  Prefetch,
  Host,
  Other,
};

enum class CommKind : std::uint8_t {
  None,
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  SendReceive,
  Copy,  // host or disk copies
};

std::string_view to_text(PassKind kind);  // "forward", "input-grad", ...
std::string_view to_text(CommKind kind);  // "all-reduce", ...

// Of a node that belongs to the whole step.
inline constexpr std::uint32_t kAllMicroBatches = 0xffffffff;

struct Tag {
  PassKind pass = PassKind::Other;
  CommKind comm = CommKind::None;
  std::uint16_t chunk = 0;
  std::uint16_t layer = 0;
  std::uint16_t slice = 0;
  std::uint32_t micro_batch = 0;
  std::uint32_t name = 0;  // index into the names of the program, 0 = unnamed
  bool operator==(const Tag&) const = default;
};

}  // namespace orrery::sim
