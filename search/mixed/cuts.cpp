// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/cuts.hpp"

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

// From the left, every stage as long as `most` allows, one position at least and one left for each
// stage after it. False when something is left over, or a stage takes longer.
bool fill(const std::vector<const ChainTimes*>& stages, std::size_t begin, std::size_t end,
          SimTime most, std::vector<int>& cut) {
  cut.clear();
  std::size_t first = begin;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const ChainTimes& chain = *stages[stage];
    const std::size_t after = stages.size() - stage - 1;
    std::size_t last = first + 1;
    while (end - last > after && chain.of(first, last + 1) <= most) {
      ++last;
    }
    if (chain.of(first, last) > most) {
      return false;
    }
    cut.push_back(static_cast<int>(last - first));
    first = last;
  }
  return first == end;
}

}  // namespace

std::vector<int> least_largest(const std::vector<const ChainTimes*>& stages, std::size_t begin,
                               std::size_t end) {
  ORRERY_CHECK(end - begin >= stages.size(), "more stages than positions");
  SimTime low;
  SimTime high;  // all on the slowest
  for (const ChainTimes* chain : stages) {
    high = std::max(high, chain->of(begin, end));
  }
  std::vector<int> cut;
  while (low < high) {
    const SimTime middle{low.ps + (high.ps - low.ps) / 2};
    if (fill(stages, begin, end, middle, cut)) {
      high = middle;
    } else {
      low = SimTime{middle.ps + 1};
    }
  }
  fill(stages, begin, end, high, cut);
  return cut;
}

}  // namespace orrery::search
