// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/v_search.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

namespace orrery::sim {
namespace {

constexpr int kMostGap = 4;  // slots from a way to the next, where it turns

struct Ways {
  int down;
  int up;
  int length() const { return down + up; }
};

struct Distances {
  Ways before;  // of the first `change` pairs of neighbours
  Ways after;
  int change;
  int length(int stages) const {
    return change * before.length() + (stages - 1 - change) * after.length();
  }
};

// Slots of the passes of neighbours fall on each other where a way down and back takes more than a
// period. The longest ways first, none longer than `longest`.
std::vector<Distances> all_distances(int stages, int longest) {
  std::vector<Ways> ways;
  for (int down = 1; down < kPeriod; ++down) {
    for (int up = 1; down + up <= kPeriod; ++up) {
      if (down + up != kPeriod - 1) {  // soon fall on each other
        ways.push_back({down, up});
      }
    }
  }
  std::vector<std::vector<Distances>> by_length(static_cast<std::size_t>(longest + 1));
  const auto add = [&](const Distances& distances) {
    const int length = distances.length(stages);
    if (length <= longest) {
      by_length[static_cast<std::size_t>(length)].push_back(distances);
    }
  };
  for (const Ways& after : ways) {
    add({after, after, 0});
    for (const Ways& before : ways) {
      for (int change = 1; before.length() != after.length() && change + 1 < stages; ++change) {
        add({before, after, change});
      }
    }
  }
  std::vector<Distances> all;
  for (; !by_length.empty(); by_length.pop_back()) {
    all.insert(all.end(), by_length.back().begin(), by_length.back().end());
  }
  return all;
}

std::vector<VBlock> blocks_of(const Distances& distances, int stages, std::array<int, 3> gaps) {
  const auto at = [](int device) { return static_cast<std::size_t>(device); };
  std::vector<VBlock> blocks(at(stages));
  int slot = 0;
  for (std::size_t type = 0; type < 4; ++type) {
    slot += type > 0 ? gaps[type - 1] : 0;
    for (int k = 0; k < stages; ++k) {
      const int device = type % 2 == 0 ? k : stages - 1 - k;
      const int pair = type % 2 == 0 ? k - 1 : device;  // of the neighbours that were passed
      if (k > 0) {
        const Ways& ways = pair < distances.change ? distances.before : distances.after;
        slot += type % 2 == 0 ? ways.down : ways.up;
      }
      blocks[at(device)][type] = slot;
    }
  }
  return blocks;
}

bool is_free_of_collisions(const std::vector<VBlock>& blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [](const VBlock& block) {
    unsigned used = 0;
    for (const int slot : block) {
      used |= 1U << static_cast<unsigned>(slot % kPeriod);
    }
    return std::popcount(used) == 4;
  });
}

// The most activations of a chunk that are live at once, with weight gradients in the free slots.
int peak_of(const VBlock& block) {
  std::array<int, kPeriod> type{};  // of the pass at a slot of the period, from 1 on
  for (std::size_t k = 0; k < block.size(); ++k) {
    type[static_cast<std::size_t>(block[k] % kPeriod)] = static_cast<int>(k) + 1;
  }
  int live = 0;
  int owed = 0;
  int peak = 0;
  for (int at = 0; at < block.back() + 2 * kPeriod; ++at) {
    const int found = type[static_cast<std::size_t>(at % kPeriod)];
    const bool begun = found > 0 && at >= block[static_cast<std::size_t>(found - 1)];
    if (!begun && owed > 0) {
      --owed;
      --live;
    } else if (begun) {
      live += found <= 2 ? 1 : 0;
      owed += found > 2 ? 1 : 0;
      peak = std::max(peak, live);
    }
  }
  return peak;
}

int peak_of(const std::vector<VBlock>& blocks) {
  int peak = 0;
  for (const VBlock& block : blocks) {
    peak = std::max(peak, peak_of(block));
  }
  return peak;
}

}  // namespace

int least_v_peak(int stages) { return 2 * ((stages + 4) / 3); }

std::vector<std::vector<VBlock>> v_blocks_within(int stages, int peak, std::size_t count) {
  std::vector<std::vector<VBlock>> found;
  // Both chunks together are live for both ways twice, and the gaps.
  const int longest = std::min(kPeriod * (peak - 1) / 2, kPeriod * (stages - 1));
  for (const Distances& distances : all_distances(stages, longest)) {
    bool fits = true;
    for (int gap = 0; fits && gap < kMostGap * kMostGap * kMostGap; ++gap) {
      const std::array<int, 3> gaps = {1 + gap / kMostGap % kMostGap, 1 + gap % kMostGap,
                                       1 + gap / (kMostGap * kMostGap)};
      std::vector<VBlock> blocks = blocks_of(distances, stages, gaps);
      if (is_free_of_collisions(blocks) && peak_of(blocks) <= peak) {
        found.push_back(std::move(blocks));
        fits = false;
      }
    }
    if (found.size() == count) {
      break;
    }
  }
  return found;
}

}  // namespace orrery::sim
