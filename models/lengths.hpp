// SPDX-License-Identifier: Apache-2.0
// Sequence lengths of variable-length training data, and how they are packed into rows of fixed
// capacity. Seeded: the same seed gives the same lengths on every platform.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace orrery::models {

// Log-normal body with a Pareto tail: a share `tail` of the sequences is longer than `tail_from`
// with density falling as length^-(tail_index + 1). Lengths are rounded and cut to [shortest,
// longest].
struct LengthModel {
  double median = 512;
  double spread = 1.0;  // standard deviation of ln(length)
  double tail = 0;      // share of sequences drawn from the tail
  double tail_from = 8192;
  double tail_index = 1.0;
  std::int64_t shortest = 1;
  std::int64_t longest = 1 << 20;
};

std::vector<std::int64_t> draw_lengths(const LengthModel& model, std::int64_t count,
                                       std::uint64_t seed);

// From a table of (quantile, length), quantiles rising from 0 to 1; linear in ln(length) between.
std::vector<std::int64_t> draw_lengths(const std::vector<std::pair<double, double>>& table,
                                       std::int64_t count, std::uint64_t seed);

enum class Packing { InOrder, FirstFit, FirstFitDecreasing, BestFitDecreasing };

// Indices of the sequences of each row. A sequence longer than a row is an error. First fit takes
// the first row with room, best fit the fullest; decreasing orders longest first (at most 11/9 of
// the least number of rows, and 6/9; Dosa 2007). O(n log n).
std::vector<std::vector<int>> pack(const std::vector<std::int64_t>& lengths, std::int64_t capacity,
                                   Packing packing);

}  // namespace orrery::models
