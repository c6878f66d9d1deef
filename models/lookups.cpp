// SPDX-License-Identifier: Apache-2.0
#include "models/lookups.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"

namespace orrery::models {

ZipfRows::ZipfRows(std::int64_t rows, double slope) {
  ORRERY_CHECK(rows > 0 && slope >= 0, "a Zipf law without rows");
  cumulative_.reserve(static_cast<std::size_t>(rows));
  double sum = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    sum += std::pow(static_cast<double>(row + 1), -slope);
    cumulative_.push_back(sum);
  }
  for (double& value : cumulative_) {
    value /= sum;
  }
}

std::vector<std::int64_t> ZipfRows::draw(std::int64_t count, std::uint64_t seed) const {
  Random random(seed);
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(count));
  for (std::int64_t index = 0; index < count; ++index) {
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end(), random.uniform());
    indices.push_back(std::min<std::int64_t>(found - cumulative_.begin(), rows() - 1));
  }
  return indices;
}

double ZipfRows::probability(std::int64_t row) const {
  const auto slot = static_cast<std::size_t>(row);
  return cumulative_[slot] - (slot > 0 ? cumulative_[slot - 1] : 0.0);
}

double ZipfRows::expected_unique(std::int64_t count) const {
  double unique = 0;
  for (std::int64_t row = 0; row < rows(); ++row) {
    const double probability_of_row = std::min(1.0, probability(row));
    unique -= std::expm1(static_cast<double>(count) * std::log1p(-probability_of_row));
  }
  return unique;
}

double ZipfRows::share_of_top(double share) const {
  const auto top = static_cast<std::int64_t>(std::llround(share * static_cast<double>(rows())));
  return top <= 0 ? 0.0 : cumulative_[static_cast<std::size_t>(std::min(top, rows()) - 1)];
}

std::int64_t count_unique(std::vector<std::int64_t> indices) {
  std::sort(indices.begin(), indices.end());
  return std::unique(indices.begin(), indices.end()) - indices.begin();
}

}  // namespace orrery::models
