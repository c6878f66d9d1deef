// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/strategy_colours.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/svg.hpp"

namespace orrery::studies {

std::string strategy_of(const std::string& layout) {
  const std::size_t begin = layout.find(", dp ");
  const std::size_t end = begin == std::string::npos ? begin : layout.find(',', begin + 1);
  return begin == std::string::npos
             ? layout
             : layout.substr(0, begin) + (end == std::string::npos ? "" : layout.substr(end));
}

StrategyColours::StrategyColours(const std::vector<SweepPoint>& points,
                                 const std::vector<std::size_t>& drawn) {
  std::map<std::string, int> counts;
  for (const std::size_t index : drawn) {
    if (points[index].state == PointState::Found) {
      ++counts[strategy_of(points[index].layout)];
    }
  }
  names_.assign(counts.begin(), counts.end());
  std::stable_sort(names_.begin(), names_.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
}

std::size_t StrategyColours::size() const {
  return std::min(names_.size(), kPictureColours.size());
}

std::string_view StrategyColours::colour(const std::string& layout) const {
  const std::string strategy = strategy_of(layout);
  for (std::size_t i = 0; i + 1 < size(); ++i) {
    if (names_[i].first == strategy) {
      return kPictureColours[i];
    }
  }
  return kPictureColours[size() - 1];
}

std::string StrategyColours::label(std::size_t index) const {
  const bool rest = index + 1 == kPictureColours.size() && names_.size() > size();
  return rest ? fmt::format("{} other strategies", names_.size() - size() + 1)
              : names_[index].first;
}

}  // namespace orrery::studies
