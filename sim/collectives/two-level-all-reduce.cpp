// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

// Groups of about the square root of the ranks, each behind its first rank; rank 0 is the root.
std::uint32_t group_size(int ranks) {
  std::uint32_t size = 1;
  while (size * size < static_cast<std::uint32_t>(ranks)) {
    ++size;
  }
  return size;
}

std::uint32_t num_steps(int ranks, ByteCount) { return ranks > 1 ? 4 : 0; }

// Members to leaders, leaders to the root, and the sum back the same way.
void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  const std::uint32_t group = group_size(ranks);
  const bool between_leaders = step == 1 || step == 2;
  for (std::uint32_t rank = 1; rank < static_cast<std::uint32_t>(ranks); ++rank) {
    const bool leads = rank % group == 0;
    if (leads != between_leaders) {
      continue;
    }
    const std::uint32_t parent = leads ? 0 : rank - rank % group;
    if (step < 2) {
      messages.push_back({step, rank, parent, true, size});
    } else {
      messages.push_back({step, parent, rank, false, size});
    }
  }
}

}  // namespace

extern const CollectiveAlgorithm collective_two_level_all_reduce = {
    "two-level-all-reduce",
    CommKind::AllReduce,
    "a tree of depth 2: four messages of latency",
    "Li et al., TPI-LLM, 2024 (arXiv 2410.00531), section 3.2",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
