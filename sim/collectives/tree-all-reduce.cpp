// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/collective.hpp"

namespace orrery::sim {
namespace {

// Places 1 to n of a binary tree in which the lowest set bit of a place is its distance to the
// leaves: odd places are leaves, the root is the largest power of two.
std::uint32_t parent_place(std::uint32_t place, std::uint32_t n) {
  const std::uint32_t low = place & (~place + 1);
  const std::uint32_t up = (place - low) | (2 * low);
  return up <= n ? up : place - low;  // 0 for the root
}

// A rank's place in the first tree, and in the second, where leaves and inner nodes change roles:
// mirrored for an even number of ranks, shifted by one for an odd one. Both maps take a rank from
// 0 to n - 1 to a place from 1 to n.
std::uint32_t place_of(std::uint32_t rank, std::uint32_t n, int tree) {
  if (tree == 0) {
    return rank + 1;
  }
  return n % 2 == 0 ? n - rank : (rank + 1) % n + 1;
}

std::uint32_t rank_at(std::uint32_t place, std::uint32_t n, int tree) {
  if (tree == 0) {
    return place - 1;
  }
  return n % 2 == 0 ? n - place : (place + n - 2) % n;
}

std::uint32_t depth_of(std::uint32_t place, std::uint32_t n) {
  std::uint32_t depth = 0;
  for (std::uint32_t up = parent_place(place, n); up != 0; up = parent_place(up, n)) {
    ++depth;
  }
  return depth;
}

std::uint32_t height_of(std::uint32_t n) {
  std::uint32_t height = 0;
  for (std::uint32_t place = 1; place <= n; place += 2) {
    height = std::max(height, depth_of(place, n));
  }
  return height;
}

std::uint32_t num_steps(int ranks, ByteCount size) {
  if (ranks == 1) {
    return 0;
  }
  const auto chunks = static_cast<std::uint32_t>(pipeline_chunks(piece_bytes(size, 2, 0)));
  return 2 * height_of(static_cast<std::uint32_t>(ranks)) + chunks - 1;
}

// Chunk c leaves depth d for its parent in step height - d + c, and the parent at depth d - 1 sends
// the sum back in step height + d - 1 + c.
void append_step(int ranks, ByteCount size, std::uint32_t step,
                 std::vector<CollectiveMessage>& messages) {
  const auto n = static_cast<std::uint32_t>(ranks);
  const std::uint32_t height = height_of(n);
  const int chunks = pipeline_chunks(piece_bytes(size, 2, 0));
  const std::size_t first = messages.size();
  for (std::uint32_t rank = 0; rank < n; ++rank) {
    for (int tree = 0; tree < 2; ++tree) {
      const std::uint32_t place = place_of(rank, n, tree);
      const std::uint32_t up = parent_place(place, n);
      if (up == 0) {
        continue;
      }
      const std::uint32_t parent = rank_at(up, n, tree);
      const ByteCount half = piece_bytes(size, 2, tree);
      const int depth = static_cast<int>(depth_of(place, n));
      const int up_chunk = static_cast<int>(step) - static_cast<int>(height) + depth;
      const int down_chunk = static_cast<int>(step) - static_cast<int>(height) - depth + 1;
      if (up_chunk >= 0 && up_chunk < chunks) {
        messages.push_back({step, rank, parent, true, piece_bytes(half, chunks, up_chunk)});
      }
      if (down_chunk >= 0 && down_chunk < chunks) {
        messages.push_back({step, parent, rank, false, piece_bytes(half, chunks, down_chunk)});
      }
    }
  }
  std::stable_sort(messages.begin() + static_cast<std::ptrdiff_t>(first), messages.end(),
                   [](const auto& a, const auto& b) { return a.from < b.from; });
}

}  // namespace

extern const CollectiveAlgorithm collective_tree_all_reduce = {
    "tree-all-reduce",
    CommKind::AllReduce,
    "double binary tree: two trees with half the data each, pipelined in chunks",
    "Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, 2009",
    &num_steps,
    &append_step};

}  // namespace orrery::sim
