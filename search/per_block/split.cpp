// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/split.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace orrery::search {

namespace {

constexpr double kWhole = 1e-4;  // nearer to a whole number counts as one
constexpr int kMost = std::numeric_limits<int>::max() / 2;

double blocks_of(const std::vector<std::vector<double>>& of_stage) {
  double sum = 0;
  for (const std::vector<double>& of_block : of_stage) {
    sum = std::accumulate(of_block.begin(), of_block.end(), sum);
  }
  return sum;
}

std::vector<StageRange> with(std::vector<StageRange> known, StageRange range) {
  for (StageRange& one : known) {
    if (one.stage == range.stage) {
      one.least = std::max(one.least, range.least);
      one.most = std::min(one.most, range.most);
      return known;
    }
  }
  known.push_back(range);
  return known;
}

}  // namespace

std::vector<std::vector<StageRange>> split_stage(const Shares& shares, const Pipeline& pipeline,
                                                 const std::vector<StageRange>& known) {
  std::set<int> begun;  // devices of which something is known
  for (const StageRange& range : known) {
    begun.insert(pipeline.placement.device_of[range.stage]);
  }
  std::size_t best = shares.blocks.size();
  double most = 0;
  for (std::size_t stage = 0; stage < shares.blocks.size(); ++stage) {
    const double blocks = blocks_of(shares.blocks[stage]);
    const double part = std::abs(blocks - std::round(blocks));
    if (part <= kWhole) {
      continue;
    }
    const double rank = part + (begun.contains(pipeline.placement.device_of[stage]) ? 1.0 : 0.0);
    if (rank > most) {
      most = rank;
      best = stage;
    }
  }
  if (best == shares.blocks.size()) {
    return {};
  }
  const int below = static_cast<int>(std::floor(blocks_of(shares.blocks[best])));
  return {with(known, {best, 1, std::max(1, below)}), with(known, {best, below + 1, kMost})};
}

}  // namespace orrery::search
