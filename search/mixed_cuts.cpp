// SPDX-License-Identifier: Apache-2.0
#include "search/mixed_cuts.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace orrery::search {

std::vector<std::vector<int>> compositions(int total, const std::vector<int>& least) {
  std::vector<std::vector<int>> all;
  std::vector<int> parts = least;
  const auto place = [&](auto&& self, std::size_t index, int left) -> void {
    const int needed = std::accumulate(least.begin() + static_cast<int>(index), least.end(), 0);
    if (left < needed) {
      return;
    }
    if (index + 1 == least.size()) {
      parts[index] = left;
      all.push_back(parts);
      return;
    }
    for (int part = least[index]; part <= left - needed + least[index]; ++part) {
      parts[index] = part;
      self(self, index + 1, left - part);
    }
  };
  place(place, 0, total);
  return all;
}

// Balls and bars: what is left beyond the least, into as many places.
std::int64_t num_compositions(std::int64_t total, const std::vector<int>& least) {
  const std::int64_t left = total - std::accumulate(least.begin(), least.end(), std::int64_t{0});
  if (left < 0) {
    return 0;
  }
  std::int64_t count = 1;
  for (std::int64_t bar = 1; bar < static_cast<std::int64_t>(least.size()); ++bar) {
    count = count * (left + bar) / bar;
  }
  return count;
}

namespace {

// From the left, every stage as long as `most` allows; fewer than `stages` runs are cut further.
// Empty when more are needed.
std::vector<int> fill(const ChainTimes& chain, std::size_t begin, std::size_t end, int stages,
                      SimTime most) {
  std::vector<int> cut;
  std::size_t first = begin;
  while (first < end) {
    const auto after = static_cast<std::size_t>(stages) - cut.size();  // this one included
    if (after == 0) {
      return {};
    }
    std::size_t last = first + 1;
    while (last < end && end - last >= after && chain.of(first, last + 1) <= most) {
      ++last;
    }
    cut.push_back(static_cast<int>(last - first));
    first = last;
  }
  return cut.size() == static_cast<std::size_t>(stages) ? cut : std::vector<int>{};
}

}  // namespace

std::vector<int> least_largest(const ChainTimes& chain, std::size_t begin, std::size_t end,
                               int stages) {
  ORRERY_CHECK(end - begin >= static_cast<std::size_t>(stages), "more stages than positions");
  SimTime low;  // the longest position alone
  for (std::size_t position = begin; position < end; ++position) {
    low = std::max(low, chain.of(position, position + 1));
  }
  SimTime high = chain.of(begin, end);
  while (low < high) {
    const SimTime middle{low.ps + (high.ps - low.ps) / 2};
    if (fill(chain, begin, end, stages, middle).empty()) {
      low = SimTime{middle.ps + 1};
    } else {
      high = middle;
    }
  }
  return fill(chain, begin, end, stages, high);
}

}  // namespace orrery::search
