// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

std::uint32_t num_steps(int ranks, ByteCount size) {
  return ranks > 1 ? static_cast<std::uint32_t>(ranks - 2 + pipeline_chunks(size)) : 0;
}

// Rank r passes chunk c on to rank r + 1 in step r + c; the last rank only receives.
void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  const int chunks = pipeline_chunks(size);
  const int last = std::min(static_cast<int>(step), ranks - 2);
  for (int from = std::max(0, static_cast<int>(step) - chunks + 1); from <= last; ++from) {
    messages.push_back({step, static_cast<std::uint32_t>(from),
                        static_cast<std::uint32_t>(from + 1), false,
                        piece_bytes(size, chunks, static_cast<int>(step) - from)});
  }
}

}  // namespace

extern const CollectiveAlgorithm collective_ring_broadcast = {
    "ring-broadcast",
    CommKind::Broadcast,
    "a pipeline of chunks along the ring",
    "Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, 2009",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
