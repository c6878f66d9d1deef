// SPDX-License-Identifier: Apache-2.0
// Uneven tensor shards (docs/layouts.md, "Uneven tensor shards"): a block states a share for each
// of its tensor-parallel ranks, and this one rule says which part of a dimension a rank holds;
// plans and the interpreter of the tests both ask it.
//   units of a dimension: heads and key-value heads by key-value groups; the inner width (of
//   experts, too) and the vocabulary by 8 where 8 divides them, else by 1
//   rank r first gets floor(units x share_r / sum of shares); the units left go one each to the
//   ranks with the largest remainders, the lower rank first where those are equal
// So a rank with a larger share never holds less of anything. Other variables are cut evenly.
// O(ranks^2) a question, no allocation.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/operators.hpp"

namespace orrery::plan {

// Shares by tensor-parallel rank; empty: all equal. Packed, as plans are copied by the million.
class TensorShares {
 public:
  static constexpr int kMaxRanks = 16;
  static constexpr int kMaxShare = 10'000;
  constexpr TensorShares() = default;
  explicit TensorShares(const std::vector<int>& shares);
  bool empty() const { return ranks_ == 0; }
  int ranks() const { return ranks_; }
  int of(int rank) const { return shares_[static_cast<std::size_t>(rank)]; }
  int sum() const;
  // The first rank with the largest share: it holds most of everything.
  int largest() const;
  std::vector<int> list() const;
  // The same shares once more for each of so many groups of the ranks; not more than kMaxRanks.
  TensorShares repeated(int times) const;
  bool operator==(const TensorShares&) const = default;

 private:
  std::array<std::uint16_t, kMaxRanks> shares_{};
  std::uint8_t ranks_ = 0;
};

// Whether shares cut the variable; all others are cut evenly.
bool is_cut_by_shares(models::Var var);
// Elements of a dimension that stay together. `extent` is the whole dimension's.
std::int64_t share_unit(const models::Dim& dim, std::int64_t extent);
// Units that a rank gets.
std::int64_t units_of_rank(const TensorShares& shares, int rank, std::int64_t units);
// Elements [begin, end) of a dimension that a rank holds.
struct ShareRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};
ShareRange share_range(const TensorShares& shares, int rank, const models::Dim& dim,
                       std::int64_t extent);
std::int64_t share_extent(const TensorShares& shares, int rank, const models::Dim& dim,
                          std::int64_t extent);

}  // namespace orrery::plan
