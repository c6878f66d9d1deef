// SPDX-License-Identifier: Apache-2.0
// Colours of the strategies of a sweep's picture: a strategy is a layout without its data-parallel
// degree, which follows the size of the cluster.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "studies/sweeps/sweep.hpp"

namespace orrery::studies {

std::string strategy_of(const std::string& layout);

// Those of the points that are drawn, by how often they win; the last colour stands for all others.
class StrategyColours {
 public:
  // `drawn`: indices of points, of which those with a plan count.
  StrategyColours(const std::vector<SweepPoint>& points, const std::vector<std::size_t>& drawn);

  std::size_t size() const;  // colours
  std::string_view colour(const std::string& layout) const;
  // What a colour means.
  std::string label(std::size_t index) const;

 private:
  std::vector<std::pair<std::string, int>> names_;
};

}  // namespace orrery::studies
