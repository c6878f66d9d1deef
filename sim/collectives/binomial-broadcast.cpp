// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

std::uint32_t num_steps(int ranks, ByteCount) {
  return static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(ranks - 1)));
}

// Whoever has the message passes it on; their number doubles with every step.
void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  const std::uint32_t holders = std::uint32_t{1} << step;
  for (std::uint32_t from = 0; from < holders; ++from) {
    const std::uint32_t to = from + holders;
    if (to < static_cast<std::uint32_t>(ranks)) {
      messages.push_back({step, from, to, false, size});
    }
  }
}

}  // namespace

extern const CollectiveAlgorithm collective_binomial_broadcast = {
    "binomial-broadcast",
    CommKind::Broadcast,
    "the number of holders doubles with every step",
    "Thakur, Rabenseifner and Gropp, Optimization of collective communication in MPICH, 2005",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
