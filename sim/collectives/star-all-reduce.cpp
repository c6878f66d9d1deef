// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

std::uint32_t num_steps(int ranks, ByteCount) { return ranks > 1 ? 2 : 0; }

// Everybody sends to rank 0, which adds up and sends the sum to everybody.
void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  for (std::uint32_t rank = 1; rank < static_cast<std::uint32_t>(ranks); ++rank) {
    if (step == 0) {
      messages.push_back({step, rank, 0, true, size});
    } else {
      messages.push_back({step, 0, rank, false, size});
    }
  }
}

}  // namespace

extern const CollectiveAlgorithm collective_star_all_reduce = {
    "star-all-reduce",
    CommKind::AllReduce,
    "all send to rank 0 and get the sum back: two messages of latency",
    "Li et al., TPI-LLM, 2024 (arXiv 2410.00531), section 3.2",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
