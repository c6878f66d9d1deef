// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

std::uint32_t num_steps(int ranks, ByteCount) { return static_cast<std::uint32_t>(ranks - 1); }

void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  const int distance = static_cast<int>(step) + 1;
  for (int from = 0; from < ranks; ++from) {
    const int to = (from + distance) % ranks;
    messages.push_back({step, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to),
                        false, piece_bytes(size, ranks, to)});
  }
}

}  // namespace

extern const CollectiveAlgorithm collective_pairwise_all_to_all = {
    "pairwise-all-to-all",
    CommKind::AllToAll,
    "one partner at a time, at growing distance",
    "Thakur, Rabenseifner and Gropp, Optimization of collective communication in MPICH, 2005",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
