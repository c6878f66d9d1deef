// SPDX-License-Identifier: Apache-2.0
#include "sim/collective.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::sim {

const CollectiveAlgorithm& find_collective(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const CollectiveAlgorithm* algorithm : collective_table()) {
    if (algorithm->name == name) {
      return *algorithm;
    }
    names.emplace_back(algorithm->name);
  }
  bad_input(where, fmt::format("unknown collective algorithm \"{}\"", printable(name)),
            nearest_hint(name, names));
}

std::vector<CollectiveMessage> collective_messages(const CollectiveAlgorithm& algorithm, int ranks,
                                                   ByteCount size) {
  constexpr std::size_t kMaxMessages = 16'000'000;
  std::vector<CollectiveMessage> messages;
  const std::uint32_t steps = algorithm.num_steps(ranks, size);
  for (std::uint32_t step = 0; step < steps; ++step) {
    algorithm.append_step(ranks, size, step, messages);
    if (messages.size() > kMaxMessages) {
      bad_input("",
                fmt::format("{} over {} ranks has more than {} messages", algorithm.name, ranks,
                            kMaxMessages),
                "use fewer ranks, or the collective as one group");
    }
  }
  return messages;
}

ByteCount bytes_of_pieces(ByteCount size, int pieces, int first, int count) {
  const std::int64_t whole = size.value() / pieces;
  const std::int64_t larger = size.value() % pieces;
  const auto before = [&](std::int64_t index) { return whole * index + std::min(index, larger); };
  return ByteCount(before(first + count) - before(first));
}

ByteCount piece_bytes(ByteCount size, int pieces, int index) {
  return bytes_of_pieces(size, pieces, index, 1);
}

int pipeline_chunks(ByteCount size) {
  constexpr std::int64_t kChunk = std::int64_t{512} << 10;
  return static_cast<int>(std::clamp<std::int64_t>(size.value() / kChunk, 1, 256));
}

void append_ring_step(int ranks, ByteCount size, std::uint32_t step, int first, bool reduces,
                      std::vector<CollectiveMessage>& messages) {
  const int back = static_cast<int>(step % static_cast<std::uint32_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const int index = (rank + first - back + 2 * ranks) % ranks;
    messages.push_back({step, static_cast<std::uint32_t>(rank),
                        static_cast<std::uint32_t>((rank + 1) % ranks), reduces,
                        piece_bytes(size, ranks, index)});
  }
}

}  // namespace orrery::sim
