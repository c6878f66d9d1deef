// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

std::uint32_t num_steps(int ranks, ByteCount) { return ranks > 1 ? 1 : 0; }

void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  for (int from = 0; from < ranks; ++from) {
    for (int distance = 1; distance < ranks; ++distance) {
      const int to = (from + distance) % ranks;
      messages.push_back({step, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to),
                          false, piece_bytes(size, ranks, to)});
    }
  }
}

}  // namespace

extern const CollectiveAlgorithm collective_direct_all_to_all = {
    "direct-all-to-all",
    CommKind::AllToAll,
    "every rank sends to all others at once",
    "Thakur, Rabenseifner and Gropp, Optimization of collective communication in MPICH, 2005",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
