// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

// Ranks beyond the largest power of two hand their data to a partner first and get the result last.
struct Shape {
  std::uint32_t core;    // largest power of two
  std::uint32_t extra;   // ranks beyond it
  std::uint32_t rounds;  // log2(core)
  std::uint32_t fold;    // 1 when there are extra ranks
};

Shape shape_of(int ranks) {
  const auto n = static_cast<std::uint32_t>(ranks);
  const std::uint32_t core = std::bit_floor(n);
  const auto rounds = static_cast<std::uint32_t>(std::countr_zero(core));
  return {core, n - core, rounds, n > core ? 1u : 0u};
}

std::uint32_t num_steps(int ranks, ByteCount) {
  const Shape shape = shape_of(ranks);
  return 2 * (shape.rounds + shape.fold);
}

// Halving: partners at distance core/2, core/4, ... 1 exchange the half the other one keeps.
// Doubling: the same distances backwards, with the block each has summed.
void append_exchange(const Shape& shape, ByteCount size, std::uint32_t step, std::uint32_t round,
                     std::vector<CollectiveMessage>& messages) {
  const bool halving = round < shape.rounds;
  const std::uint32_t distance =
      halving ? shape.core >> (round + 1) : std::uint32_t{1} << (round - shape.rounds);
  for (std::uint32_t from = 0; from < shape.core; ++from) {
    const std::uint32_t to = from ^ distance;
    const std::uint32_t owner = halving ? to : from;
    messages.push_back({step, from, to, halving,
                        bytes_of_pieces(size, static_cast<int>(shape.core),
                                        static_cast<int>(owner / distance * distance),
                                        static_cast<int>(distance))});
  }
}

void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  const Shape shape = shape_of(ranks);
  const std::uint32_t last = num_steps(ranks, size) - 1;
  if (shape.fold == 1 && (step == 0 || step == last)) {
    for (std::uint32_t i = 0; i < shape.extra; ++i) {
      const std::uint32_t beyond = shape.core + i;
      messages.push_back(step == 0 ? CollectiveMessage{step, beyond, i, true, size}
                                   : CollectiveMessage{step, i, beyond, false, size});
    }
    return;
  }
  append_exchange(shape, size, step, step - shape.fold, messages);
}

}  // namespace

extern const CollectiveAlgorithm collective_recursive_all_reduce = {
    "recursive-all-reduce",
    CommKind::AllReduce,
    "recursive halving (reduce-scatter), then recursive doubling (all-gather)",
    "Thakur, Rabenseifner and Gropp, Optimization of collective communication in MPICH, 2005",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
