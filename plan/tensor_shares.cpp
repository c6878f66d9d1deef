// SPDX-License-Identifier: Apache-2.0
#include "plan/tensor_shares.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace orrery::plan {

namespace {

constexpr std::int64_t kColumns = 8;  // a 16-byte access of 16-bit elements

}  // namespace

TensorShares::TensorShares(const std::vector<int>& shares)
    : ranks_(static_cast<std::uint8_t>(shares.size())) {
  ORRERY_CHECK(shares.size() <= kMaxRanks, "more tensor shares than can be held");
  std::transform(shares.begin(), shares.end(), shares_.begin(),
                 [](int share) { return static_cast<std::uint16_t>(share); });
}

int TensorShares::sum() const { return std::accumulate(shares_.begin(), shares_.end(), 0); }

int TensorShares::largest() const {
  return static_cast<int>(std::max_element(shares_.begin(), shares_.end()) - shares_.begin());
}

std::vector<int> TensorShares::list() const { return {shares_.begin(), shares_.begin() + ranks_}; }

TensorShares TensorShares::repeated(int times) const {
  std::vector<int> all;
  for (int group = 0; group < times; ++group) {
    all.insert(all.end(), shares_.begin(), shares_.begin() + ranks_);
  }
  return TensorShares(all);
}

bool is_cut_by_shares(models::Var var) {
  return var == models::Var::Head || var == models::Var::KvHead || var == models::Var::Ffn ||
         var == models::Var::Vocab;
}

std::int64_t share_unit(const models::Dim& dim, std::int64_t extent) {
  if (dim.var == models::Var::Ffn || dim.var == models::Var::Vocab) {
    return extent % kColumns == 0 ? kColumns : 1;
  }
  return dim.unit;
}

std::int64_t units_of_rank(const TensorShares& shares, int rank, std::int64_t units) {
  const std::int64_t sum = shares.sum();
  const auto remainder = [&](int at) { return units * shares.of(at) % sum; };
  std::int64_t left = units;
  int ahead = 0;  // ranks that get one of the units left before this one does
  for (int other = 0; other < shares.ranks(); ++other) {
    left -= units * shares.of(other) / sum;
    const bool earlier =
        remainder(other) > remainder(rank) || (remainder(other) == remainder(rank) && other < rank);
    ahead += earlier ? 1 : 0;
  }
  return units * shares.of(rank) / sum + (ahead < left ? 1 : 0);
}

ShareRange share_range(const TensorShares& shares, int rank, const models::Dim& dim,
                       std::int64_t extent) {
  const std::int64_t unit = share_unit(dim, extent);
  ShareRange range;
  for (int before = 0; before < rank; ++before) {
    range.begin += units_of_rank(shares, before, extent / unit) * unit;
  }
  range.end = range.begin + units_of_rank(shares, rank, extent / unit) * unit;
  return range;
}

std::int64_t share_extent(const TensorShares& shares, int rank, const models::Dim& dim,
                          std::int64_t extent) {
  const std::int64_t unit = share_unit(dim, extent);
  return units_of_rank(shares, rank, extent / unit) * unit;
}

}  // namespace orrery::plan
