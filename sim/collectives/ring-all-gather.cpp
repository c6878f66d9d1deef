// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

std::uint32_t num_steps(int ranks, ByteCount) { return static_cast<std::uint32_t>(ranks - 1); }

void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  append_ring_step(ranks, size, step, 0, false, messages);
}

}  // namespace

extern const CollectiveAlgorithm collective_ring_all_gather = {
    "ring-all-gather",
    CommKind::AllGather,
    "every piece goes once around the ring",
    "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
