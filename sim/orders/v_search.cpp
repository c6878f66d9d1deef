// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/v_search.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
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
};

// Ways of neighbours. Those of a way down and back that takes one slot less than a period soon fall
// on each other, as those that take more than one do.
std::vector<Ways> all_ways() {
  std::vector<Ways> ways;
  for (int down = 1; down < kPeriod; ++down) {
    for (int up = 1; down + up <= kPeriod; ++up) {
      if (down + up != kPeriod - 1) {
        ways.push_back({down, up});
      }
    }
  }
  return ways;
}

// All distances of a length.
template <typename Visit>
void visit_distances(const std::vector<Ways>& ways, int stages, int length, Visit visit) {
  const int pairs = stages - 1;
  for (const Ways& after : ways) {
    const int more = length - pairs * after.length();
    if (more == 0) {
      visit(Distances{after, after, 0});
    }
    for (const Ways& before : ways) {
      const int of_each = before.length() - after.length();
      if (of_each != 0 && more % of_each == 0 && more / of_each >= 1 && more / of_each < pairs) {
        visit(Distances{before, after, more / of_each});
      }
    }
  }
}

using Gaps = std::array<int, 3>;

// Of any device, without those of the others.
class Slots {
 public:
  Slots(const Distances& distances, int stages, Gaps gaps)
      : distances_(distances), stages_(stages), down_(down_to(stages - 1)), up_(up_to(0)) {
    turns_ = {0, down_ + gaps[0], down_ + gaps[0] + up_ + gaps[1],
              down_ + gaps[0] + up_ + gaps[1] + down_ + gaps[2]};
  }
  VBlock of(int device) const {
    const int down = down_to(device);
    const int up = up_to(device);
    return {down, turns_[1] + up, turns_[2] + down, turns_[3] + up};
  }

 private:
  int down_to(int device) const {  // from device 0
    const int before = std::min(device, distances_.change);
    return before * distances_.before.down + (device - before) * distances_.after.down;
  }
  int up_to(int device) const {  // from the last device
    const int before = std::max(distances_.change - device, 0);
    return before * distances_.before.up + (stages_ - 1 - device - before) * distances_.after.up;
  }

  Distances distances_;
  int stages_;
  int down_;  // slots from one end to the other
  int up_;
  std::array<int, 4> turns_{};  // where each of the four goes on
};

bool is_free_of_collisions(const VBlock& block) {
  unsigned used = 0;
  for (const int slot : block) {
    used |= 1U << static_cast<unsigned>(slot % kPeriod);
  }
  return std::popcount(used) == 4;
}

// The most activations of a chunk that are live at once, with weight gradients in the free slots.
// They only rise from period to period, so that the first after the last gradient has begun tells.
int peak_of(const VBlock& block) {
  std::array<int, kPeriod> type{};  // of the pass at a slot of the period, from 1 on
  for (std::size_t k = 0; k < block.size(); ++k) {
    type[static_cast<std::size_t>(block[k] % kPeriod)] = static_cast<int>(k) + 1;
  }
  const auto begun = [&](int chunk, int at) {
    const int since = at - block[static_cast<std::size_t>(chunk)];
    return (since + kPeriod - 1) / kPeriod;
  };
  int at = block[2];
  int live = begun(0, at) + begun(1, at);
  int owed = 0;
  int peak = live;
  const auto walk = [&](int end) {
    for (; at < end; ++at) {
      const int found = type[static_cast<std::size_t>(at % kPeriod)];
      const bool runs = found > 0 && at >= block[static_cast<std::size_t>(found - 1)];
      if (runs) {
        live += found <= 2 ? 1 : 0;
        owed += found > 2 ? 1 : 0;
        peak = std::max(peak, live);
      } else if (owed > 0) {
        --owed;
        --live;
      }
    }
  };
  // Gradients of one chunk alone: one period is as the one before, with one activation more.
  walk(std::min(at + kPeriod, block[3]));
  const int alike = (block[3] - at) / kPeriod;
  at += alike * kPeriod;
  live += alike;
  walk(block[3] + 2 * kPeriod);
  return peak;
}

bool are_within(const Slots& slots, int stages, int peak) {
  for (int device = 0; device < stages; ++device) {
    const VBlock block = slots.of(device);
    if (!is_free_of_collisions(block) || peak_of(block) > peak) {
      return false;
    }
  }
  return true;
}

std::vector<VBlock> blocks_of(const Slots& slots, int stages) {
  std::vector<VBlock> blocks;
  blocks.reserve(static_cast<std::size_t>(stages));
  for (int device = 0; device < stages; ++device) {
    blocks.push_back(slots.of(device));
  }
  return blocks;
}

// With the first gaps that fit.
std::optional<std::vector<VBlock>> first_within(const Distances& distances, int stages, int peak) {
  for (int gap = 0; gap < kMostGap * kMostGap * kMostGap; ++gap) {
    const Slots slots(
        distances, stages,
        {1 + gap / kMostGap % kMostGap, 1 + gap % kMostGap, 1 + gap / (kMostGap * kMostGap)});
    if (are_within(slots, stages, peak)) {
      return blocks_of(slots, stages);
    }
  }
  return std::nullopt;
}

}  // namespace

int least_v_peak(int stages) { return 2 * ((stages + 4) / 3); }

std::vector<std::vector<VBlock>> v_blocks_within(int stages, int peak, std::size_t count) {
  std::vector<std::vector<VBlock>> found;
  const std::vector<Ways> ways = all_ways();
  // Both chunks together are live for both ways twice, and the gaps.
  const int longest = std::min(kPeriod * (peak - 1) / 2, kPeriod * (stages - 1));
  for (int length = longest; length >= 0 && found.size() < count; --length) {
    visit_distances(ways, stages, length, [&](const Distances& distances) {
      if (found.size() < count) {
        if (std::optional<std::vector<VBlock>> blocks = first_within(distances, stages, peak)) {
          found.push_back(*std::move(blocks));
        }
      }
    });
  }
  return found;
}

}  // namespace orrery::sim
