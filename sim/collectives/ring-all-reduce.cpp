// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

std::uint32_t num_steps(int ranks, ByteCount) { return 2 * static_cast<std::uint32_t>(ranks - 1); }

// Reduce-scatter, after which rank r holds the sum of piece r + 1, then all-gather.
void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  append_ring_step(ranks, size, step, 0, step + 1 < static_cast<std::uint32_t>(ranks), messages);
}

}  // namespace

extern const CollectiveAlgorithm collective_ring_all_reduce = {
    "ring-all-reduce",
    CommKind::AllReduce,
    "ring reduce-scatter followed by ring all-gather",
    "Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
