// SPDX-License-Identifier: Apache-2.0
// Embedding lookups: row indices of a table drawn from a Zipf law, and how many of them are
// distinct, which is what a sparse gradient and a de-duplicated exchange move. Row r (from 0) has
// probability proportional to (r + 1)^-slope. Seeded.
#pragma once

#include <cstdint>
#include <vector>

namespace orrery::models {

class ZipfRows {
 public:
  // O(rows) to build; slope 0 is uniform.
  ZipfRows(std::int64_t rows, double slope);

  std::vector<std::int64_t> draw(std::int64_t count, std::uint64_t seed) const;  // O(log rows) each
  double probability(std::int64_t row) const;
  // Expected distinct rows of `count` draws: sum of 1 - (1 - q)^count.
  double expected_unique(std::int64_t count) const;
  // Share of the draws that go to the most frequent `share` of the rows.
  double share_of_top(double share) const;
  std::int64_t rows() const { return static_cast<std::int64_t>(cumulative_.size()); }

 private:
  std::vector<double> cumulative_;
};

std::int64_t count_unique(std::vector<std::int64_t> indices);

}  // namespace orrery::models
