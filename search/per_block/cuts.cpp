// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/cuts.hpp"

#include <algorithm>
#include <cstddef>
#include <set>

namespace orrery::search {

namespace {

constexpr int kMostFewer = 2;  // layers in the stage of the head, beside all others

// Sizes of the first chunk that are tried.
std::vector<int> first_chunks(int layers, int devices, int chunks) {
  if (chunks == 1) {
    return {0};  // nothing to choose
  }
  const int mean = layers / (devices * chunks);
  std::set<int> sizes = {1, 2, mean / 2, mean - 1, mean, mean + 1};
  std::erase_if(sizes, [&](int size) { return size < 1 || size > mean + 1; });
  return {sizes.begin(), sizes.end()};
}

}  // namespace

std::vector<std::vector<int>> likely_cuts(int positions, int devices, int chunks) {
  std::vector<std::vector<int>> cuts;
  const int layers = positions - 2;
  const auto stages = static_cast<std::size_t>(devices) * static_cast<std::size_t>(chunks);
  const auto add = [&](std::vector<int> cut) {
    ++cut.front();
    ++cut.back();
    const bool empty = std::any_of(cut.begin(), cut.end(), [](int count) { return count < 1; });
    if (!empty && std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) {
      cuts.push_back(std::move(cut));
    }
  };
  for (const int first : first_chunks(layers, devices, chunks)) {
    const std::size_t fixed = chunks == 1 ? 0 : static_cast<std::size_t>(devices);
    const int open = static_cast<int>(stages - fixed);
    for (int fewer = 0; fewer <= kMostFewer; ++fewer) {
      const int rest = layers - first * static_cast<int>(fixed) + fewer;
      if (rest < 0) {
        continue;
      }
      for (const bool late : {true, false}) {
        std::vector<int> cut(stages, first);
        const int left = rest % open;
        for (int index = 0; index < open; ++index) {
          const bool more = late ? index >= open - left : index < left;
          cut[fixed + static_cast<std::size_t>(index)] = rest / open + (more ? 1 : 0);
        }
        cut.back() -= fewer;
        add(std::move(cut));
      }
    }
  }
  return cuts;
}

}  // namespace orrery::search
